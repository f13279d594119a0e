package limitfile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
)

// Config is what all files of a folder say. It does not change.
type Config struct {
	domains map[string]*Domain
}

// Domain returns the domain of that name, or nil.
func (c *Config) Domain(name string) *Domain { return c.domains[name] }

// Domains returns the names of the domains in order.
func (c *Config) Domains() []string {
	names := make([]string, 0, len(c.domains))
	for name := range c.domains {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Domain has the limits of a domain.
type Domain struct {
	Name string

	// Limits are all limits in the order of the files, except those that are Unlimited.
	Limits []*Limit

	root node
}

// Limit is a rate_limit.
type Limit struct {
	// Rule is the name under which the limit is counted, which no other limit has.
	Rule string

	// Place is the index in Domain.Limits.
	Place int

	// Limit is the limit. Its Quota is 1 where Requests is 0.
	Limit core.Limit

	// Requests, Unit and Multiplier are as in the file, and Multiplier is 1 unless set.
	// Requests of 0 mean that every request is refused.
	Requests   uint32
	Unit       Unit
	Multiplier uint32

	Name     string   // for people and for Replaces, or ""
	Replaces []string // names of limits that this one puts out of force

	Unlimited, Shadow, QuotaMode bool // unlimited, shadow_mode and quota_mode

	Metadata map[string]any // for the answer, or nil
}

// Entry is one entry of a descriptor of a request.
type Entry struct{ Key, Value string }

// node is a descriptor.
type node struct {
	values   map[Entry]*node  // by key and value
	patterns []pattern        // in the order of the files
	keys     map[string]*node // without a value

	limit  *Limit
	shared bool // share_threshold
}

// pattern is a descriptor whose value has a "*".
type pattern struct {
	key, value string
	parts      []string // around each "*"
	to         *node
}

// Find returns the limit to which the entries lead, or nil, and appends to key what
// distinguishes the count from others of the limit. Different values never have the same
// key.
func (d *Domain) Find(entries []Entry, key []byte) (*Limit, []byte) {
	// The last entry decides about the limit, and the values of all about the count.
	n := &d.root
	for i, e := range entries {
		to, value := n.next(e)
		if to == nil {
			return nil, key
		}
		n = to
		if i > 0 {
			key = append(key, '|')
		}
		key = appendValue(key, value)
	}

	if len(entries) == 0 {
		return nil, key
	}
	return n.limit, key
}

// next returns where the entry leads, or nil, and the value by which it is counted.
func (n *node) next(e Entry) (*node, string) {
	// A value that a file names has precedence over any pattern.
	if to := n.values[e]; to != nil {
		return to, e.Value
	}

	// Of several patterns the first in the files leads on.
	for i := range n.patterns {
		p := &n.patterns[i]
		if p.key == e.Key && matches(p.parts, e.Value) {
			if p.to.shared {
				return p.to, p.value
			}
			return p.to, e.Value
		}
	}
	return n.keys[e.Key], e.Value
}

// matches reports whether the value has the parts in order, the first at its beginning and
// the last at its end.
func matches(parts []string, value string) bool {
	// What is between the first and the last part is looked for from the left: if there is any way
	// to fit the parts, the earliest place of each is one.
	first, last := parts[0], parts[len(parts)-1]
	rest, ok := strings.CutPrefix(value, first)
	if !ok {
		return false
	}
	if rest, ok = strings.CutSuffix(rest, last); !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return true
}

// appendValue appends a value so that a "|" and a backslash in it cannot be mistaken for
// those between values.
func appendValue(key []byte, value string) []byte {
	for i := range len(value) {
		if value[i] == '|' || value[i] == '\\' {
			key = append(key, '\\')
		}
		key = append(key, value[i])
	}
	return key
}

// AppendKey appends the keys and values of the entries, for the count of a limit that came
// with a request. Different entries never have the same text.
func AppendKey(key []byte, entries []Entry) []byte {
	for i, e := range entries {
		if i > 0 {
			key = append(key, '|')
		}
		key = appendValue(key, e.Key)
		key = appendValue(append(key, "|="...), e.Value)
	}
	return key
}

// maxRule is the length of the longest name of a rule.
const maxRule = 64

// OverrideRule returns the name under which the limits are counted that come with
// requests of the domain.
func (d *Domain) OverrideRule() string { return override.rule(d.Name, false) }

// path leads to a limit. No other one of the domain has the same exact text.
type path struct{ text, exact string }

// override is the path of the limits that come with requests.
var override = path{"override", "override"}

// to returns the path to a descriptor below p.
func (p path) to(e Entry) path {
	if p.text != "" {
		p.text += "."
	}
	if p.text += e.Key; e.Value != "" {
		p.text += "_" + e.Value
	}
	p.exact += fmt.Sprintf("%q:%q ", e.Key, e.Value)
	return p
}

// nameLimits gives every limit its Rule and Place.
func nameLimits(d *Domain, paths []path) {
	taken := map[string]int{d.OverrideRule(): 1}
	for _, p := range paths {
		taken[p.rule(d.Name, false)]++
	}
	for i, l := range d.Limits {
		ambiguous := taken[paths[i].rule(d.Name, false)] > 1
		l.Rule, l.Place = paths[i].rule(d.Name, ambiguous), i
	}
}

// rule returns the name of the rule of a limit in the domain: readable, and with a digest
// where the text alone would be too long, or that of another path.
func (p path) rule(domain string, digest bool) string {
	full := "rls." + domain + "." + p.text
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '_', r == '.', r == '-':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, full)

	if name == full && len(name) <= maxRule && !digest {
		return name
	}

	// The digest is of the exact path, so that two limits with one readable name differ.
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s", domain, p.exact))
	tail := "." + hex.EncodeToString(sum[:8])
	return name[:min(len(name), maxRule-len(tail))] + tail
}
