package policyyaml

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// Encode writes a valid set as YAML, ordered by name, so that equal sets have equal
// texts. [Decode] reads it.
func Encode(s policy.Set) ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(s) == 0 {
		return []byte("policies: []\n"), nil
	}
	sorted := slices.SortedFunc(slices.Values(s), func(a, b policy.Policy) int { return cmp.Compare(a.Name, b.Name) })
	w := writer{[]byte("policies:\n")}
	for i := range sorted {
		if w.policy(&sorted[i]); len(w.text) > MaxBytes {
			return nil, fmt.Errorf("policy: they take more than %d bytes", MaxBytes)
		}
	}
	return w.text, nil
}

// writer writes YAML in block style, and quotes texts that a reader could take for
// another type.
type writer struct{ text []byte }

func (w *writer) policy(p *policy.Policy) {
	w.field("- name", p.Name)
	w.field("  description", p.Description)
	w.list("  apps", p.Apps)
	w.field("  limit", p.Limit.String())
	w.limits("  plans", p.Plans)
	w.field("  plan_by", p.PlanBy)
	w.limits("  overrides", p.Overrides)
	w.field("  key", p.Key)
	if m := p.Match; len(m.Methods) > 0 || m.Host != "" || m.Path != "" {
		w.text = append(w.text, "  match:\n"...)
		w.list("    methods", m.Methods)
		w.field("    host", m.Host)
		w.field("    path", m.Path)
	}
	w.access(&p.Access)
	w.field("  on_limit", p.OnLimit)
	w.field("  ban", p.Ban.String())
	w.field("  on_store_error", p.OnStoreError)
	if p.Mode != policy.Enforce {
		w.field("  mode", p.Mode.String())
	}
	w.number("  priority", int64(p.Priority))
	w.number("  version", p.Version)
	w.field("  created_by", p.CreatedBy)
	w.instant("  created_at", p.CreatedAt)
	w.field("  updated_by", p.UpdatedBy)
	w.instant("  updated_at", p.UpdatedAt)
}

func (w *writer) access(a *policy.Access) {
	from := len(w.text)
	w.text = append(w.text, "  access:\n"...)
	head := len(w.text)
	w.callers("    allow", &a.Allow)
	w.callers("    deny", &a.Deny)
	if a.DenyOthers {
		w.text = append(w.text, "    deny_others: true\n"...)
	}
	w.number("    deny_status", int64(a.DenyStatus))
	if len(w.text) == head {
		w.text = w.text[:from]
	}
}

func (w *writer) callers(name string, c *policy.Callers) {
	if len(c.Networks)+len(c.Keys) > 0 {
		w.text = append(append(w.text, name...), ":\n"...)
		w.list("      networks", c.Networks)
		w.list("      keys", c.Keys)
	}
}

// limits writes a table of limits.
func (w *writer) limits(name string, limits map[string]core.Limit) {
	if len(limits) == 0 {
		return
	}
	w.text = append(append(w.text, name...), ":\n"...)
	for _, key := range slices.Sorted(maps.Keys(limits)) {
		w.field("    "+scalar(key), limits[key].String())
	}
}

// field writes a text, unless it is empty.
func (w *writer) field(name, value string) {
	if value != "" {
		w.text = fmt.Appendf(w.text, "%s: %s\n", name, scalar(value))
	}
}

// instant writes t in UTC, unless it is the zero time.
func (w *writer) instant(name string, t time.Time) {
	if !t.IsZero() {
		w.field(name, t.UTC().Format(time.RFC3339Nano))
	}
}

func (w *writer) number(name string, n int64) {
	if n != 0 {
		w.text = fmt.Appendf(w.text, "%s: %d\n", name, n)
	}
}

func (w *writer) list(name string, values []string) {
	if len(values) == 0 {
		return
	}
	indent := name[:len(name)-len(strings.TrimLeft(name, " "))]
	w.text = append(append(w.text, name...), ":\n"...)
	for _, v := range values {
		w.text = fmt.Appendf(w.text, "%s- %s\n", indent, scalar(v))
	}
}

// scalar returns the text unquoted if every version of YAML reads it as a text,
// and quoted as in JSON otherwise.
func scalar(s string) string {
	if isPlain(s) {
		return s
	}
	quoted, _ := json.Marshal(s) // no string fails
	return string(quoted)
}

// isPlain reports whether s consists of letters and harmless signs and is not a
// word or number with a meaning in YAML.
func isPlain(s string) bool {
	for i := range len(s) {
		if !isHarmless(s, i) {
			return false
		}
	}
	if !strings.ContainsFunc(s, isLetter) {
		return false
	}
	first := s[0]
	if first >= '0' && first <= '9' {
		return strings.Contains(s, "/") || strings.Contains(s, " ")
	}
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null":
		return false
	}
	return true
}

// isHarmless reports whether the byte at i cannot end the text or change its
// meaning at that position.
func isHarmless(s string, i int) bool {
	switch c := s[i]; c {
	case '_', '/':
		return true
	case '.', '-', '+', '=', '{', '}':
		return i > 0
	case ':', ' ':
		return i > 0 && i+1 < len(s) && isAlphanumeric(s[i+1]) && s[i-1] != ' '
	default:
		return isAlphanumeric(c)
	}
}

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }

func isAlphanumeric(c byte) bool { return isLetter(rune(c)) || c >= '0' && c <= '9' }
