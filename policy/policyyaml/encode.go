package policyyaml

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/headgate/headgate/policy"
)

// Encode writes a valid set as YAML, ordered by name, so that equal sets have equal
// texts. [Decode] reads it.
func Encode(s policy.Set) ([]byte, error) {
	if len(s) == 0 {
		return []byte("policies: []\n"), nil
	}
	text, err := policy.EncodeJSON(s)
	if err != nil {
		return nil, err
	}
	return blocks(text)
}

// blocks turns the JSON of a set that is not empty into YAML.
func blocks(text []byte) ([]byte, error) {
	w := writer{json.NewDecoder(bytes.NewReader(text)), nil}
	w.json.UseNumber()

	// The brace of the whole set has no counterpart in block style.
	_, err := w.json.Token()
	if err == nil {
		err = w.fields("", false)
	}
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}

	if len(w.text) > MaxBytes {
		return nil, fmt.Errorf("policy: they take more than %d bytes", MaxBytes)
	}
	return w.text, nil
}

// writer turns the JSON of a set, in which no object and no list is empty, into YAML in block
// style. It quotes texts that a reader could take for another type.
type writer struct {
	json *json.Decoder
	text []byte
}

// fields writes the rest of an object, each field in a line of its own, except that the first
// one stands where the text ends if it is inLine.
func (w *writer) fields(indent string, inLine bool) error {
	for ; w.json.More(); inLine = false {
		name, err := w.json.Token()
		if err != nil {
			return err
		}
		if !inLine {
			w.text = append(w.text, indent...)
		}

		w.text = append(append(w.text, scalar(name.(string))...), ':') // JSON has no other names
		if err := w.value(indent); err != nil {
			return err
		}
	}

	// The brace that ends the object.
	_, err := w.json.Token()
	return err
}

// value writes the value of a field that stands at the indent.
func (w *writer) value(indent string) error {
	t, err := w.json.Token()
	switch {
	case err != nil:
		return err
	case t == json.Delim('{'):
		w.text = append(w.text, '\n')
		return w.fields(indent+"  ", false)
	case t != json.Delim('['):
		w.text = append(w.text, ' ')
		w.leaf(t)
		return nil
	}

	w.text = append(w.text, '\n')
	for w.json.More() {
		if t, err = w.json.Token(); err != nil {
			return err
		}

		// An entry stands at the indent of its field, and the fields of an object below its first
		// one.
		w.text = append(append(w.text, indent...), "- "...)
		if t != json.Delim('{') {
			w.leaf(t)
		} else if err := w.fields(indent+"  ", true); err != nil {
			return err
		}
	}

	_, err = w.json.Token()
	return err
}

// leaf ends a line with a text, a number or a truth value.
func (w *writer) leaf(t json.Token) {
	if s, ok := t.(string); ok {
		t = scalar(s)
	}
	w.text = fmt.Appendln(w.text, t)
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

	// A text without a letter may be a number, a date or a sign.
	if !strings.ContainsFunc(s, isLetter) {
		return false
	}

	// One that begins with a digit may be a number, as 1e3 is, unless it holds what no number does.
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
