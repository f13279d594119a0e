package readme

import (
	"go/format"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// Every name on a page is one of the code, and every link leads to something.
func TestPagesNameWhatIs(t *testing.T) {
	c, all := survey(t), pages(t)
	anchors := map[string]map[string]bool{}
	for _, p := range all {
		anchors[p.path] = p.anchors()
	}

	for _, p := range all {
		for _, f := range c.check(p, anchors) {
			t.Errorf("%s:%s", p.path, f)
		}
	}
	if t.Failed() {
		t.Log("names of others, which no code of ours has, stand in foreign_test.go")
	}
}

// check returns what a page says that is not so.
func (c *code) check(p *page, anchors map[string]map[string]bool) (list []finding) {
	note := func(line int, what, name string) { list = append(list, finding{line, what + ": " + name}) }

	c.checkConstants(p, note)
	c.checkLinks(p, anchors, note)
	c.checkProse(p, note)
	for _, s := range p.spans {
		if !isForeign(p, s) {
			c.checkSpan(p, s, note)
		}
	}
	for _, b := range p.blocks {
		c.checkBlock(p, b, note)
	}

	// The kinds were checked one after the other.
	slices.SortStableFunc(list, func(a, b finding) int { return a.line - b.line })
	return list
}

// note takes a finding.
type note func(line int, what, name string)

var (
	variable   = regexp.MustCompile(`\bHEADGATE_[A-Z0-9_]*[A-Z0-9]\b`)
	codeOf     = regexp.MustCompile(`\bHG\d{3}\b`)
	metricName = regexp.MustCompile(`\bheadgate(\.[a-z_]+)+\b|\bheadgate(_[a-z]+)+\b`)
)

// checkConstants checks what is told apart by its form alone, anywhere on the page.
func (c *code) checkConstants(p *page, note note) {
	for _, at := range variable.FindAllStringIndex(p.text, -1) {
		if name := p.text[at[0]:at[1]]; !c.words[name] {
			note(p.lineOf(at[0]), "no variable", name)
		}
	}

	for _, at := range codeOf.FindAllStringIndex(p.text, -1) {
		if name := p.text[at[0]:at[1]]; !c.words[name] {
			note(p.lineOf(at[0]), "no code of a finding", name)
		}
	}

	// A file and a variable of the code may look like a metric.
	for _, at := range metricName.FindAllStringIndex(p.text, -1) {
		if at[0] > 0 && strings.ContainsAny(p.text[at[0]-1:at[0]], "./") {
			continue // a part of another name
		}

		if name := p.text[at[0]:at[1]]; !c.isMetric(name) && !c.bases[name] && !c.words[name] {
			note(p.lineOf(at[0]), "no metric", name)
		}
	}
}

// isMetric reports whether a name is of a metric or an attribute: as OpenTelemetry has it, or as
// Prometheus does.
func (c *code) isMetric(name string) bool {
	if c.metrics[name] {
		return true
	}

	// Prometheus adds the unit, and what is counted.
	for of := range c.metrics {
		rest, ok := strings.CutPrefix(name, strings.ReplaceAll(of, ".", "_"))
		rest = strings.TrimPrefix(rest, "_seconds")
		if ok && slices.Contains([]string{"", "_total", "_bucket", "_sum", "_count"}, rest) {
			return true
		}
	}
	return false
}

// checkLinks checks links to files and to headings.
func (c *code) checkLinks(p *page, anchors map[string]map[string]bool, note note) {
	for _, at := range anyLink.FindAllStringSubmatchIndex(p.prose, -1) {
		link := p.prose[at[2]:at[3]]
		target, anchor, _ := strings.Cut(link, "#")
		if strings.Contains(target, ":") {
			continue
		}

		to := p.path
		if target != "" {
			to = path.Join(path.Dir(p.path), target)
		}
		switch {
		case target != "" && !c.files[to]:
			note(p.lineOf(at[2]), "no file", link)
		case anchor != "" && !anchors[to][anchor]:
			note(p.lineOf(at[2]), "no heading", link)
		}
	}
}

var (
	chain    = regexp.MustCompile(`[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+`)
	camel    = regexp.MustCompile(`^([A-Z][a-z0-9]*[A-Za-z0-9]*[a-z][A-Za-z0-9]*)(\(.*\))?$`)
	snake    = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)
	written  = regexp.MustCompile(`^([a-z][a-z_]*): \S`)
	pathLike = regexp.MustCompile(`^[\w.*-]+(/[\w.*-]+)+/?$`)
	fileName = regexp.MustCompile(`^[\w-]+\.(go|md|lua|svg|conf|cfg|txt|yaml|yml|json|sh)$`)
)

// checkProse checks names with a package that stand outside of code.
func (c *code) checkProse(p *page, note note) {
	// Inline code becomes spaces, so that positions stay.
	prose := inlineCode.ReplaceAllStringFunc(p.prose, func(code string) string {
		return strings.Map(func(r rune) rune {
			if r < 128 && r != '\n' {
				return ' '
			}
			return r
		}, code)
	})

	for _, at := range chain.FindAllStringIndex(prose, -1) {
		name := prose[at[0]:at[1]]
		parts := strings.Split(name, ".")

		packages := c.packages[parts[0]]
		if packages != nil && isUpper(parts[1]) && !c.inPackages(packages, parts[1:]) {
			note(p.lineOf(at[0]), "no name of package "+parts[0], name)
		}
	}
}

// checkSpan checks inline code, which is one of: a path, a command, a name.
func (c *code) checkSpan(p *page, s span, note note) {
	text := s.text
	switch {
	case pathLike.MatchString(text):
		c.checkPath(p, s, note)
		return
	case fileName.MatchString(text):
		if !c.bases[text] && !c.words[strings.TrimSuffix(text, path.Ext(text))] {
			note(s.line, "no file", text)
		}
		return
	}

	c.checkFlags(p, s, note)
	c.checkChains(p, s, note)

	// A bare name may be of any package, or of a program that the code speaks to.
	if m := camel.FindStringSubmatch(text); m != nil && !c.names[m[1]] && !c.words[m[1]] {
		note(s.line, "no name", m[1])
	}

	if snake.MatchString(text) && !metricName.MatchString(text) && !c.isField(text) {
		note(s.line, "no field", text)
	}
	if m := written.FindStringSubmatch(text); m != nil && !c.isField(m[1]) {
		note(s.line, "no field", m[1])
	}
}

// isField reports whether the code or a file has a name with underscores, or what a program makes
// of a field of that name.
func (c *code) isField(name string) bool {
	var exported string
	for part := range strings.SplitSeq(name, "_") {
		exported += strings.ToUpper(part[:1]) + part[1:]
	}
	return c.keys[name] || c.words[name] || c.names[exported] || c.names["Get"+exported]
}

// checkPath checks what may be a file or a folder: one whose first part is in the root or beside
// the page.
func (c *code) checkPath(p *page, s span, note note) {
	name := strings.TrimSuffix(strings.TrimPrefix(s.text, "./"), "/")
	first, _, _ := strings.Cut(name, "/")
	here := path.Dir(p.path)
	if c.files[name] || c.files[path.Join(here, name)] {
		return
	}

	// Others, such as types of media, begin with no folder of ours.
	if c.files[first] || c.files[path.Join(here, first)] {
		note(s.line, "no file", s.text)
	}
}

// checkChains checks names with dots: of packages, of types, and of fields of policies.
func (c *code) checkChains(p *page, s span, note note) {
	for _, at := range chain.FindAllStringIndex(s.text, -1) {
		// A part of an address or a path is no name.
		before := strings.TrimRight(s.text[:at[0]], "*&[(")
		if before != "" && strings.ContainsAny(before[len(before)-1:], `./-@:"$`) {
			continue
		}

		name := s.text[at[0]:at[1]]
		parts := strings.Split(name, ".")

		switch packages := c.packages[parts[0]]; {
		case packages != nil && isUpper(parts[1]):
			if !c.inPackages(packages, parts[1:]) {
				note(s.line, "no name of package "+parts[0], name)
			}
		case isUpper(parts[0]) && isUpper(parts[1]):
			if !c.isMember(p, parts) {
				note(s.line, "no method or field", name)
			}
		case policyFields[parts[0]] != nil && !c.bases[name]:
			if !ofPolicy(parts) {
				note(s.line, "no field of a policy", name)
			}
		}
	}
}

func isUpper(name string) bool { return unicode.IsUpper(rune(name[0])) }

// inPackages reports whether one of the packages has a name, and what follows is a member of it.
func (c *code) inPackages(packages []*pkg, parts []string) bool {
	return slices.ContainsFunc(packages, func(p *pkg) bool {
		return p.names[parts[0]] && (len(parts) == 1 || len(c.types[p.dir+"."+parts[0]]) == 0 ||
			c.isMember(nil, append([]string{p.dir + "." + parts[0]}, parts[1:]...)))
	})
}

// isMember reports whether a type has a member, that has another, and so on. Without its package
// the type is of one that the page speaks of.
func (c *code) isMember(on *page, parts []string) bool {
	of := parts[0]
	for _, member := range parts[1:] {
		next, ok := c.member(on, of, member, 3)
		if on = nil; !ok {
			return false
		}

		if of = next; len(c.types[of]) == 0 {
			return true // a type of others, or what a method returns
		}
	}
	return true
}

// policyFields has the written fields of a policy, and of those that are objects theirs.
var policyFields = fieldsOf(reflect.TypeFor[policy.Policy]())

// fields are written names, each with the fields of its object.
type fields map[string]fields

func fieldsOf(t reflect.Type) fields {
	all := fields{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}

		// Objects of other packages, such as limits, are written as texts.
		all[name] = fields{}
		if f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == reflect.TypeFor[policy.Policy]().PkgPath() {
			all[name] = fieldsOf(f.Type)
		}
	}
	return all
}

// ofPolicy reports whether a policy has the field. Keys of a table are not known.
func ofPolicy(parts []string) bool {
	at := policyFields
	for _, part := range parts {
		next, ok := at[part]
		if !ok {
			return len(at) == 0
		}
		at = next
	}
	return true
}

// checkBlock checks a block by its kind.
func (c *code) checkBlock(p *page, b span, note note) {
	switch b.kind {
	case "go":
		if err := parseGo(b.text); err != nil {
			note(b.line, "no Go", err.Error())
		}
	case "yaml":
		if strings.HasPrefix(b.text, "policies:") || strings.HasPrefix(b.text, "plans:") {
			if _, err := policyyaml.Decode([]byte(b.text)); err != nil {
				note(b.line, "no policies", err.Error())
			}
			return
		}
		c.checkKeys(b, note)
	case "", "sh", "console", "bash":
		c.checkCommands(p, b, note)
	}
}

// parseGo parses a file, declarations, statements, or the elements of a composite value.
func parseGo(text string) error {
	_, err := format.Source([]byte(text))

	// The error is that of the text as it is.
	if err != nil {
		if _, e := format.Source([]byte("var _ = t{\n" + text + "\n}")); e == nil {
			return nil
		}
	}
	return err
}

// checkKeys checks the keys of a block of YAML.
func (c *code) checkKeys(b span, note note) {
	for i, line := range strings.Split(b.text, "\n") {
		if m := fileKey.FindStringSubmatch(line); m != nil && !c.keys[m[1]] {
			note(b.line+i, "no field", m[1])
		}
	}
}
