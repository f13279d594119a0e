package refusal

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/textform"
)

// template is a text with placeholders, in parts.
type template []part

// part is a text, or the name of what stands in its place.
type part struct{ text, name string }

// names are what a placeholder may be.
var names = []string{"policy", "retry_after", "status", "title"}

// values are what stands in place of placeholders.
type values struct {
	retryAfter int64
	status     int
	policy     string
}

// parse reads a text with placeholders such as {{status}}.
func parse(text string) (t template, err error) {
	for {
		before, rest, found := strings.Cut(text, "{{")
		if before != "" {
			t = append(t, part{text: before})
		}
		if !found {
			return t, nil
		}

		// A name that is misspelled would reach clients as it is.
		name, after, closed := strings.Cut(rest, "}}")
		if name = strings.TrimSpace(name); !closed || !slices.Contains(names, name) {
			return nil, fmt.Errorf("{{%s is none of {{%s}}", textform.Clip(name), strings.Join(names, "}}, {{"))
		}
		t = append(t, part{name: name})
		text = after
	}
}

// fill returns the text with the values.
func (t template) fill(v *values) []byte {
	var b []byte
	for _, p := range t {
		switch p.name {
		case "policy":
			b = append(b, v.policy...)
		case "retry_after":
			b = strconv.AppendInt(b, v.retryAfter, 10)
		case "status":
			b = strconv.AppendInt(b, int64(v.status), 10)
		case "title":
			b = append(b, http.StatusText(v.status)...)
		default:
			b = append(b, p.text...)
		}
	}

	return b
}
