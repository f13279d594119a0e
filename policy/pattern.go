package policy

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/headgate/headgate/internal/textform"
)

const (
	maxPattern  = 1000 // bytes
	maxSegments = 32
)

// pattern is a parsed Match.Path.
type pattern struct {
	segments []string // in lower case; "" stands for any one segment
	subtree  bool     // everything below matches too
}

// parsePattern reads Match.Path; "" matches all paths. Its error has the pattern that is
// probably meant, if there is one.
func parsePattern(s string) (pattern, error) {
	p, err := readPattern(s)
	if err == nil || len(s) > maxPattern {
		return p, err
	}
	if meant := meantPattern(s); meant != "" {
		err = fmt.Errorf("%w; write %q", err, meant)
	}
	return p, err
}

func readPattern(s string) (pattern, error) {
	switch {
	case s == "":
		return pattern{subtree: true}, nil
	case strings.Contains(s, "://"):
		return pattern{}, fmt.Errorf("%q is a URL; write its host in match.host, "+
			"and here what begins with the slash after it", textform.Clip(s))
	case s[0] != '/':
		return pattern{}, fmt.Errorf("%q does not begin with a slash", textform.Clip(s))
	case len(s) > maxPattern:
		return pattern{}, fmt.Errorf("%d bytes are more than %d", len(s), maxPattern)
	}

	if err := textform.Check(s, maxPattern); err != nil {
		return pattern{}, err
	}

	// The end decides whether the pattern covers what is below. It is no segment itself.
	texts := strings.Split(s[1:], "/")
	last := len(texts) - 1
	p := pattern{}
	names := map[string]bool{}
	switch end := texts[last]; {
	case end == "":
		p.subtree, texts = true, texts[:last]
	case end == "{$}":
		texts = texts[:last]
	case strings.HasPrefix(end, "{") && strings.HasSuffix(end, "...}"):
		if err := wildcard(strings.TrimSuffix(end, "...}")+"}", names); err != nil {
			return pattern{}, err
		}
		p.subtree, texts = true, texts[:last]
	}

	if len(texts) > maxSegments {
		return pattern{}, fmt.Errorf("%d segments are more than %d", len(texts), maxSegments)
	}
	for _, text := range texts {
		segment, err := parseSegment(text, names)
		if err != nil {
			return pattern{}, err
		}
		p.segments = append(p.segments, segment)
	}
	return p, nil
}

// parseSegment reads the text between two slashes.
func parseSegment(text string, names map[string]bool) (string, error) {
	if strings.HasPrefix(text, "{") {
		return "", wildcard(text, names)
	}
	if err := checkNotation(text); err != nil {
		return "", err
	}

	// The literal is compared with decoded paths, so what a decoded path cannot have in one segment
	// is a mistake.
	literal, err := url.PathUnescape(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("the segment %q has a percent sign that escapes nothing", textform.Clip(text))
	case literal == "":
		return "", errors.New("there is an empty segment")
	case literal == "." || literal == "..":
		return "", fmt.Errorf("the segment %q is never part of a clean path", literal)
	case strings.TrimSpace(literal) != literal:
		return "", fmt.Errorf("the segment %q has space at an end", textform.Clip(text))
	case strings.Contains(literal, "/"):
		return "", fmt.Errorf("the segment %q has an encoded slash, "+
			"which may be a slash to one router and a part of a segment to another; "+
			"write a slash, or a wildcard such as {id}", textform.Clip(text))
	case strings.ContainsAny(literal, "{}"):
		return "", fmt.Errorf("the segment %q is neither a literal nor a whole wildcard such as {id}",
			textform.Clip(text))
	}
	return fold(literal), nil
}

// wildcard checks "{name}".
func wildcard(text string, names map[string]bool) error {
	name, ok := strings.CutSuffix(strings.TrimPrefix(text, "{"), "}")
	valid := ok && name != "" && (name[0] < '0' || name[0] > '9')
	for i := range len(name) {
		valid = valid && (isAlphanumeric(name[i]) || name[i] == '_')
	}

	if !valid {
		return fmt.Errorf("%q is not a wildcard such as {id}, or {rest...} at the end", textform.Clip(text))
	}

	if names[name] {
		return fmt.Errorf("the wildcard {%s} is repeated", textform.Clip(name))
	}
	names[name] = true
	return nil
}

// fold returns s with A to Z in lower case. It allocates only if s has any.
func fold(s string) string {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return foldFrom(s, i)
		}
	}
	return s
}

func foldFrom(s string, first int) string {
	b := []byte(s)
	for i := first; i < len(b); i++ {
		if 'A' <= b[i] && b[i] <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}
