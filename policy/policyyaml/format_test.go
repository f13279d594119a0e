package policyyaml_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy/policyyaml"
)

func TestFormatKeepsTheComments(t *testing.T) {
	const text = `# limits of the shop

policies: # all of them
# guessing
- key: ip # by address
  name: search
  # as the contract says
  limit: 60/m
  apps: [ shop ]
  mode: enforce # for now
- name: api
  description: "a # is no comment here"
  # second thoughts
  apps:
  - shop # the only one
  limit: 100/1m0s burst=20
  key: ip
# the end
`
	const want = `# limits of the shop
# all of them
policies:
- name: api
  description: "a # is no comment here"
  # second thoughts
  apps: # the only one
  - shop
  limit: 100/1m burst=20
  key: ip
# guessing
- name: search # for now
  apps:
  - shop
  # as the contract says
  limit: 60/1m
  key: ip # by address
# the end
`

	got, err := policyyaml.Format([]byte(text))
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}

	// What has the form already stays as it is.
	again, err := policyyaml.Format(got)
	if err != nil || string(again) != want {
		t.Errorf("a second time: %v\n%s", err, again)
	}

	if _, err := policyyaml.Format([]byte("policies:\n- name: x\n")); err == nil {
		t.Error("a text with mistakes has a form")
	}
}

// A comment is kept, or the text has no form.
func TestFormatLosesNoComment(t *testing.T) {
	const text = "# whose\npolicies:\n- name: a # one\n  # two\n  apps: [x]\n  limit: 1/1m # three\n  key: ip\n# the end\n"
	const want = "# whose\npolicies:\n- name: a # one\n  # two\n  apps:\n  - x\n  limit: 1/1m # three\n  key: ip\n# the end\n"

	for _, text := range []string{text, strings.ReplaceAll(text, "\n", "\r\n"), "\ufeff" + text} {
		if got, err := policyyaml.Format([]byte(text)); err != nil || string(got) != want {
			t.Errorf("%q: %v\n%s", text, err, got)
		}
	}

	// Lines that end in CR alone are named.
	for cr, line := range map[string]int{
		strings.ReplaceAll(text, "\n", "\r"):             1,
		strings.Replace(text, "two\n", "two\r", 1):       4,
		strings.Replace(text, "three\n", "three\r\r", 1): 6,
	} {
		got, err := policyyaml.Format([]byte(cr))
		var at *policyyaml.LineError

		if !errors.As(err, &at) || at.Line != line || got != nil {
			t.Errorf("%q: %v, want a mistake in line %d\n%s", cr, err, line, got)
		}
	}
}

// A column is that of the field, and of the first one where a field is not written.
func TestDecodeLinesNamesColumns(t *testing.T) {
	_, _, err := policyyaml.DecodeLines([]byte("policies:\n- {name: a, limit: x, apps: [b], key: ip}\n"))
	var line *policyyaml.LineError
	if !errors.As(err, &line) || line.Line != 2 || line.Column != 13 {
		t.Errorf("%v at %+v, want line 2 and column 13", err, line)
	}
}
