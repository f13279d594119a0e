package policy

import (
	"encoding/json"
	"fmt"
	"strings"
)

// EncodeYAML writes a valid set as YAML, ordered by name, so that equal sets have
// equal texts. [DecodeYAML] reads it.
func EncodeYAML(s Set) ([]byte, error) {
	entries, err := s.entries()
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return []byte("policies: []\n"), nil
	}
	w := writer{[]byte("policies:\n")}
	for i := range entries {
		w.entry(&entries[i])
	}
	if len(w.text) > MaxBytesYAML {
		return nil, fmt.Errorf("policy: %d bytes are more than %d", len(w.text), MaxBytesYAML)
	}
	return w.text, nil
}

// writer writes YAML in block style, and quotes texts that a reader could take for
// another type.
type writer struct{ text []byte }

func (w *writer) entry(e *entry) {
	w.field("- name", e.Name)
	w.field("  description", e.Description)
	w.list("  apps", e.Apps)
	w.field("  limit", e.Limit)
	w.field("  key", e.Key)
	if e.Match != nil {
		w.text = append(w.text, "  match:\n"...)
		w.list("    methods", e.Match.Methods)
		w.field("    host", e.Match.Host)
		w.field("    path", e.Match.Path)
	}
	w.field("  on_limit", e.OnLimit)
	w.field("  on_store_error", e.OnStoreError)
	w.field("  mode", e.Mode)
	w.number("  priority", int64(e.Priority))
	w.number("  version", e.Version)
	w.field("  created_by", e.CreatedBy)
	w.field("  created_at", e.CreatedAt)
	w.field("  updated_by", e.UpdatedBy)
	w.field("  updated_at", e.UpdatedAt)
}

// field writes a text, unless it is empty.
func (w *writer) field(name, value string) {
	if value != "" {
		w.text = fmt.Appendf(w.text, "%s: %s\n", name, scalar(value))
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
