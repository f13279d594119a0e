// This file finds patterns of other routers, proxies and languages in a path. They would
// be read as literals, and a policy with one would never apply.

package policy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/textform"
)

// checkNotation refuses a literal segment that means something in another notation of
// paths.
func checkNotation(segment string) error {
	part := foreignPart(segment)
	if part == "" {
		return nil
	}
	var escaped strings.Builder
	for _, c := range []byte(part) {
		fmt.Fprintf(&escaped, "%%%02X", c)
	}
	return fmt.Errorf("the segment %q has a %q, which is no pattern here; the character itself is written %s",
		textform.Clip(segment), part, escaped.String())
}

// foreignPart returns the part of a segment that is a pattern elsewhere, or "".
func foreignPart(segment string) string {
	if segment == "" {
		return ""
	}

	// These mean something wherever they stand.
	for _, part := range []string{"*", "?", "#", "<", ">", "[", "]", "^", "|", `\`, "`", `"`, ".+"} {
		if strings.Contains(segment, part) {
			return part
		}
	}

	// These mean something in one place only, and are plain characters elsewhere.
	switch {
	case segment[0] == ':': // as in "/users/:id", and not as in "/items:batch"
		return ":"
	case segment == "...", segment == "+":
		return segment
	case segment[len(segment)-1] == '$': // as in "/login$", and not as in "/$count"
		return "$"
	}
	return ""
}

// Segments of other notations. The second group is the name of a wildcard.
var (
	restSegment = regexp.MustCompile(
		`^(\*+|\+|\.\.\.|\(?\.[*+]\)?|[*+]\w+|\[{1,2}\.\.\.\w+\]{1,2}|\{\*+\w*\}|\{\w+:\.[*+]\})$`)
	oneSegment = regexp.MustCompile(`^(?::|<(?:\w+:)?|\{|\[)([A-Za-z_]\w*)(?:[:?(<=].*)?[\]}>)?*+]*$`)
	anySegment = regexp.MustCompile(`^\(?(\*+|\.[*+]|\\[dw][*+]|\[[^\]]+\][*+]|\[[^\]]+\]\{[\d,]+\})\)?$`)
)

// meantPattern returns the pattern that a path of another notation stands for, or "" if that
// is not clear.
func meantPattern(path string) string {
	// A pattern is always one of the whole path, so the anchors of a regular expression add
	// nothing.
	path = strings.TrimSuffix(strings.TrimPrefix(path, "^"), "$")

	if i := strings.IndexAny(path, "?#"); i > 0 && !strings.ContainsAny(path, "(:{[<*") {
		path = path[:i] // a query or a fragment
	}

	texts := strings.Split(path, "/")
	used := map[string]bool{}
	for i, text := range texts {
		name := ""
		switch group := oneSegment.FindStringSubmatch(text); {
		// Only the last segment can stand for several. One of these in the middle is a wildcard.
		case i == len(texts)-1 && restSegment.MatchString(text):
			texts[i] = "" // all below
			continue
		case text == "{$}", i == len(texts)-1 && strings.HasSuffix(text, "...}"):
			continue
		case anySegment.MatchString(text), restSegment.MatchString(text):
			name = "any"
		case group != nil:
			name = group[1]
		default:
			continue
		}

		// A pattern cannot repeat a name.
		for n := 2; used[name]; n++ {
			name = strings.TrimRight(name, "0123456789") + strconv.Itoa(n)
		}
		used[name] = true
		texts[i] = "{" + name + "}"
	}

	// What is still not a pattern is no help to the reader of the mistake.
	pattern := strings.Join(texts, "/")
	if _, err := readPattern(pattern); err != nil {
		return ""
	}
	return pattern
}
