package transport

import (
	"fmt"
	"strings"
	"testing"
)

// The rows are of RFC 9651, and of mistakes that a lax parser does not see.
func TestStructuredFields(t *testing.T) {
	for text, want := range map[string]string{
		// Well-formed: spaces, the last of equal parameters, escapes, tokens, dictionaries, and
		// members of kinds that mean nothing here.
		`"a";r=1;t=2`:                         `"a" 1 2`,
		`  "a";r=1;t=2  `:                     `"a" 1 2`,
		`"a";  r=1;t=2`:                       `"a" 1 2`,
		"\"a\";r=1 \t,\t \"b\";r=2":           `"a" 1 -1|"b" 2 -1`,
		`"a";r=1;r=2`:                         `"a" 2 -1`,
		`"a\"b\\";r=1`:                        `"a\"b\\" 1 -1`,
		`a;r=1`:                               `a 1 -1`,
		`a/b:c;r=1, *x;r=2`:                   `a/b:c 1 -1|*x 2 -1`,
		`A;r=1`:                               `A 1 -1`,
		`a=1, b=2;r=3`:                        `a:1 -1 -1|b:2 3 -1`,
		`-5;r=0`:                              `-5 0 -1`,
		`1.5;r=0, ?1, :aGk=:, @5, %"x%c3%bc"`: `other 0 -1|other -1 -1|other -1 -1|other -1 -1|other -1 -1`,

		// Parameters of a wrong kind or sign spoil their member and no other.
		`"a";r=-1`:              `"a" -1 -1 bad`,
		`"a";r=-1;r=5`:          `"a" 5 -1`,
		`"a";r=5;r=-1`:          `"a" -1 -1 bad`,
		`"a";r=-1;t=5`:          `"a" -1 5 bad`,
		`"a";r`:                 `"a" -1 -1 bad`,
		`"a";r="1"`:             `"a" -1 -1 bad`,
		`"a";r=1.0`:             `"a" -1 -1 bad`,
		`"a";r=999999999999999`: `"a" 999999999999999 -1`,

		// One mistake anywhere makes the whole field void, as the RFC demands.
		``: "", ` `: "", `,`: "", `"a",`: "", `"a",,"b"`: "", `"a" "b"`: "", `"a`: "", `"a\`: "", `"a\x"`: "",
		"\"a\x7f\"": "", "\"a\t\"": "", `"ä"`: "",
		`"a";`: "", `"a";R=1`: "", `"a";r=`: "", `"a";r =1`: "", `"a" ;r=1`: "", `"a";r=9999999999999999`: "",
		`"a";r=1.`: "", `"a";r=1.2345`: "", `"a";r=1234567890123.1`: "",
		`"a";r=--1`: "", `"a";r=-`: "", `(a b)`: "", `a=(1 2)`: "", `?2`: "", `:a`: "", `:a-b:`: "", `@1.5`: "",
		`@`: "", `%"a`: "", `%"%C3"`: "", `%"%c3"`: "", `%a`: "", `a=`: "",
		`a, b=1`: "", `b=1, "a"`: "", "\"a\"\x00": "", "a\x00": "", `=1`: "", `;r=1`: "",
	} {
		if got := members(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}

	// Lines are joined; an empty one is a mistake, and a field beyond maxField is not read at all.
	if got := members("a;r=1", "b;r=2"); got != "a 1 -1|b 2 -1" {
		t.Errorf("two lines: %q", got)
	}
	if got := members("a;r=1", ""); got != "" {
		t.Errorf("an empty line beside another: %q", got)
	}
	if got := members(strings.Repeat(" ", maxField-1)+"a", "b"); got != "" {
		t.Errorf("a field that is too long: %q", got)
	}
}

// members returns the members of a field as text, and "" if it does not have its form.
func members(lines ...string) string {
	// Only what the callers use is written: the key, the item and the two parameters.
	var all []string
	ok := parse(lines, func(m member) {
		text := ""
		if m.key != "" {
			text = m.key + ":"
		}

		switch m.value.kind {
		case integer:
			text += fmt.Sprint(m.value.n)
		case token:
			text += m.value.text
		case other:
			text += "other"
		default:
			text += `"` + m.value.text + `"`
		}

		text += fmt.Sprintf(" %d %d", m.params.r, m.params.t)
		if m.params.wrong != 0 {
			text += " bad"
		}
		all = append(all, text)
	})

	if !ok {
		return ""
	}
	return strings.Join(all, "|")
}
