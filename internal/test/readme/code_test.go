package readme

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The code is what a page may name: of all modules of the repository, by the syntax alone.
type code struct {
	packages map[string][]*pkg          // public ones, by name
	types    map[string][]*typ          // those of public packages, by name
	flags    map[string]map[string]bool // by the folder of the program, and by file
	commands map[string]string          // of headgate, with the file of each
	metrics  map[string]bool            // and attributes, as OpenTelemetry has them

	names map[string]bool // all identifiers, those of tests too
	tests []string        // and benchmarks
	words map[string]bool // the words of texts in code, and of all files that are no code
	keys  map[string]bool // of YAML and JSON: of tags, and of files
	files map[string]bool // and folders
	bases map[string]bool // the last parts of files
}

// A pkg is what a public package exports outside of its types.
type pkg struct {
	dir, name string
	names     map[string]bool
}

// A typ has the methods and fields of a type, each with the name of its type, if it has one.
type typ struct {
	of       string // the name of its package
	members  map[string]string
	embedded []string
}

// surveyed is what survey has read.
var surveyed *code

// survey reads the files of the repository, once for all tests.
func survey(t *testing.T) *code {
	t.Helper()
	if surveyed != nil {
		return surveyed
	}
	c := &code{
		packages: map[string][]*pkg{}, types: map[string][]*typ{}, flags: map[string]map[string]bool{},
		commands: map[string]string{}, metrics: map[string]bool{}, names: map[string]bool{}, words: map[string]bool{},
		keys: map[string]bool{}, files: map[string]bool{}, bases: map[string]bool{},
	}

	var sources []string
	for _, name := range filesOf(t) {
		c.bases[path.Base(name)] = true
		for dir := name; dir != "."; dir = path.Dir(dir) {
			c.files[dir] = true
		}

		// What data of tests say is no name of the code.
		switch ext := path.Ext(name); {
		case ext == ".go":
			sources = append(sources, name)
		case !slices.Contains([]string{".md", ".sum", ".svg", ".png"}, ext) && !strings.Contains(name, "/testdata/"):
			c.addText(read(t, name), ext)
		}
	}

	for i, f := range parseAll(sources) {
		if f == nil {
			t.Fatalf("%s is no Go", sources[i])
		}
		c.addFile(sources[i], f)
	}
	surveyed = c
	return c
}

// parseAll returns the syntax of files, with nil for those that have none.
func parseAll(names []string) []*ast.File {
	found := make([]*ast.File, len(names))
	const workers = 4
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for i := worker; i < len(names); i += workers {
				name := filepath.Join(root, names[i])
				found[i], _ = parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			}
		})
	}
	all.Wait()
	return found
}

var (
	word    = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
	fileKey = regexp.MustCompile(`(?m)^[ -]*"?([A-Za-z_][\w-]*)"?:(?:\s|$)`)
	tagKey  = regexp.MustCompile(`(?:json|yaml):"([\w-]+)`)
)

// addText adds the words of a file that is no Go, and its keys if it is YAML or JSON.
func (c *code) addText(text, ext string) {
	for _, w := range word.FindAllString(text, -1) {
		c.words[w] = true
	}
	if ext == ".yaml" || ext == ".yml" || ext == ".json" {
		for _, m := range fileKey.FindAllStringSubmatch(text, -1) {
			c.keys[m[1]] = true
		}
	}
}

// addFile adds a file of Go. What tests declare is no name of a package.
func (c *code) addFile(name string, f *ast.File) {
	dir, test := path.Dir(name), strings.HasSuffix(name, "_test.go")
	public := !test && !strings.Contains("/"+dir+"/", "/internal/") && f.Name.Name != "main"

	// A name of a page may stand for any part of the code.
	if public {
		c.declare(c.packageIn(dir, f.Name.Name), f)
	}

	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if test {
				c.tests = append(c.tests, n.Name.Name)
			}
		case *ast.Ident:
			c.names[n.Name] = true
		case *ast.BasicLit:
			c.addLiteral(n, test, dir)
		case *ast.CallExpr:
			if flag := flagOf(n); flag != "" && !test {
				c.addFlag(name, flag)
			}
		case *ast.CompositeLit:
			c.addComposite(name, n, test)
		}
		return true
	})
}

// addLiteral adds the words of a text. Those of tests may be of what is no more.
func (c *code) addLiteral(l *ast.BasicLit, test bool, dir string) {
	if m := variable.FindString(l.Value); m != "" {
		c.words[m] = true // some are for tests
	}

	if l.Kind != token.STRING || test {
		return
	}
	for _, m := range tagKey.FindAllStringSubmatch(l.Value, -1) {
		c.keys[m[1]] = true
	}

	text, _ := strconv.Unquote(l.Value)

	for _, w := range word.FindAllString(text, -1) {
		c.words[w] = true
	}

	// Metrics are in the list of meter, and attributes with what sets them.
	if metricName.FindString(text) == text {
		c.words[text] = true
	}
	if strings.HasPrefix(dir, "observe/") && strings.HasPrefix(text, "headgate.") || text == "error.type" {
		c.metrics[text] = true
	}
}

// packageIn returns the package of a folder.
func (c *code) packageIn(dir, name string) *pkg {
	for _, p := range c.packages[name] {
		if p.dir == dir {
			return p
		}
	}

	p := &pkg{dir, name, map[string]bool{}}
	c.packages[name] = append(c.packages[name], p)
	return p
}

// declare adds what a file of a public package exports.
func (c *code) declare(p *pkg, f *ast.File) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				p.names[d.Name.Name] = true
			} else {
				c.typeIn(p, nameOf(d.Recv.List[0].Type)).members[d.Name.Name] = ""
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				c.declareSpec(p, s)
			}
		}
	}
}

func (c *code) declareSpec(p *pkg, s ast.Spec) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, id := range s.Names {
			p.names[id.Name] = true
		}
	case *ast.TypeSpec:
		p.names[s.Name.Name] = true

		t := c.typeIn(p, s.Name.Name)
		switch of := s.Type.(type) {
		case *ast.StructType:
			t.add(of.Fields)
		case *ast.InterfaceType:
			t.add(of.Methods)
		default:
			t.embedded = append(t.embedded, nameOf(of)) // such as an alias
		}
	}
}

// typeIn returns the type of a package. All of one name are kept apart by the package.
func (c *code) typeIn(p *pkg, name string) *typ {
	key := p.dir + "." + name
	if len(c.types[key]) == 0 {
		t := &typ{of: p.name, members: map[string]string{}}
		c.types[key], c.types[name] = []*typ{t}, append(c.types[name], t)
	}
	return c.types[key][0]
}

// add adds fields, or the methods of an interface.
func (t *typ) add(l *ast.FieldList) {
	for _, f := range l.List {
		of := nameOf(f.Type)
		if len(f.Names) == 0 {
			t.embedded = append(t.embedded, of)
			t.members[of] = of
		}
		for _, id := range f.Names {
			t.members[id.Name] = of
		}
	}
}

// nameOf returns the name of a type, without its package, pointer, slice and parameters.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.StarExpr:
		return nameOf(e.X)
	case *ast.ArrayType:
		return nameOf(e.Elt)
	case *ast.MapType:
		return nameOf(e.Value)
	case *ast.IndexExpr:
		return nameOf(e.X)
	case *ast.IndexListExpr:
		return nameOf(e.X)
	}
	return ""
}

// member reports whether a type of the name has the member, and what type that has. On a page it
// is one of those types that the page may mean.
func (c *code) member(on *page, name, member string, depth int) (of string, ok bool) {
	for _, t := range c.types[name] {
		if on != nil && !on.speaksOf(t.of) {
			continue
		}
		if of, ok := t.members[member]; ok {
			return of, true
		}
		for _, e := range t.embedded {
			if of, ok := c.member(nil, e, member, depth-1); ok && depth > 0 {
				return of, true
			}
		}
	}
	return "", false
}

// flagOf returns the name of the flag that a call defines, as package flag has it.
func flagOf(call *ast.CallExpr) string {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) < 3 {
		return ""
	}

	// A Var has the address before the name.
	kind, isVar := strings.CutSuffix(sel.Sel.Name, "Var")
	at := 0
	if isVar {
		at = 1
	}

	switch kind {
	case "String", "Bool", "Int", "Int64", "Uint", "Uint64", "Duration", "Float64", "Func", "BoolFunc", "Text", "":
		return textOf(call.Args[at])
	}
	return ""
}

// textOf returns the value of a text in the code, or "".
func textOf(e ast.Expr) string {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return ""
	}
	text, _ := strconv.Unquote(l.Value)
	return text
}

// addFlag adds a flag of the program that the file belongs to.
func (c *code) addFlag(file, flag string) {
	for _, of := range []string{programOf(file), file} {
		if c.flags[of] == nil {
			c.flags[of] = map[string]bool{}
		}
		c.flags[of][flag] = true
	}
}

// programOf returns the folder of the program that a file belongs to.
func programOf(file string) string {
	dir := path.Dir(file)
	if first, rest, _ := strings.Cut(dir, "/"); first == "cmd" {
		name, _, _ := strings.Cut(rest, "/")
		return "cmd/" + name
	}
	return dir
}

// addComposite adds a setting of the gateway, or a command of headgate: both are values with a
// name and a text about it.
func (c *code) addComposite(file string, l *ast.CompositeLit, test bool) {
	fields := map[string]string{} // those that are no plain text are empty
	for _, e := range l.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if id, ok := kv.Key.(*ast.Ident); ok {
				fields[id.Name] = textOf(kv.Value)
			}
		}
	}

	_, told := fields["usage"]
	switch name, of := fields["name"], programOf(file); {
	case test || name == "":
	case of == "cmd/headgate" && nameOf(l.Type) == "command":
		c.commands[name] = file
	case of == "cmd/headgate-gateway" && told:
		c.addFlag(file, name)
		c.keys[name] = true
		c.words["HEADGATE_GATEWAY_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))] = true
	}
}

// anyFlag reports whether any program has the flag.
func (c *code) anyFlag(name string) bool {
	for flags := range maps.Values(c.flags) {
		if flags[name] {
			return true
		}
	}
	return false
}
