// This file has the conditions of a match beside method, host and path.

package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// MaxExcept is the maximum number of patterns of Match.Except.
const MaxExcept = 32

// conditions are those of one policy that an [Index] has no tree for.
type conditions struct {
	except  []exactPattern
	headers []headerCondition
	query   [][]int // of each parameter the terms of which one is needed
	claims  []claimCondition
}

// headerCondition is one of Match.Headers, with the canonical name.
type headerCondition struct {
	name   string
	values Values
}

// conditions returns those of a valid match, or nil if it has none.
func (x *Index) conditions(m *Match) *conditions {
	if len(m.Except)+len(m.Headers)+len(m.Query)+len(m.Claims) == 0 {
		return nil
	}

	c := &conditions{query: x.terms.of(m.Query)}
	for _, text := range m.Except {
		c.except = append(c.except, exactPatternOf(text))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		c.headers = append(c.headers, headerCondition{textproto.CanonicalMIMEHeaderKey(name), m.Headers[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(m.Claims)) {
		c.claims = append(c.claims, claimCondition{name, m.Claims[name]})
	}
	return c
}

// met reports whether the request meets the conditions.
func (s *search) met(c *conditions) bool {
	for i := range c.headers {
		if !c.headers[i].met(s.request) {
			return false
		}
	}
	for _, anyOf := range c.query {
		if !s.has(anyOf) {
			return false
		}
	}
	for i := range c.claims {
		if !c.claims[i].met(s.claim(c.claims[i].name)) {
			return false
		}
	}
	return len(c.except) == 0 || !c.excepts(s.request)
}

func (h *headerCondition) met(r core.Request) bool {
	lines := r.Header(h.name)
	if h.values.isAny() {
		return len(lines) > 0
	}
	return slices.ContainsFunc(h.values, func(value string) bool { return slices.Contains(lines, value) })
}

// excepts reports whether the request is left out. It is only if its path is one that no router
// and no program behind it reads in another way, as it is now and as the client sent it.
func (c *conditions) excepts(r core.Request) bool {
	if r, ok := r.(rawPathed); ok && strings.Contains(r.RawPath(), "%") {
		return false
	}
	if r, ok := r.(sentPathed); ok {
		if text := r.SentPath(); text != "" && !c.exceptsPath(text) {
			return false
		}
	}
	return c.exceptsPath(r.Path())
}

func (c *conditions) exceptsPath(path string) bool {
	if !isUnambiguous(path) {
		return false
	}
	return slices.ContainsFunc(c.except, func(p exactPattern) bool { return p.matches(path) })
}

// isUnambiguous reports whether all programs read a path alike: it has no dots, escapes,
// parameters, backslashes, control characters or empty segments.
func isUnambiguous(path string) bool {
	if !strings.HasPrefix(path, "/") || strings.Contains(path, "//") || strings.Contains(path, "/.") {
		return false
	}
	return !strings.ContainsFunc(path, func(c rune) bool {
		return c < ' ' || c == 0x7f || c == '%' || c == ';' || c == '\\' || c == utf8.RuneError
	})
}

// exactPattern is a pattern of Match.Except. Unlike one of Match.Path it means one spelling alone:
// case counts, and so does a slash at the end.
type exactPattern struct {
	segments []string // "" stands for any one segment
	end      string   // behind the segments: "", "/", or "/*" for everything below
}

// exactPatternOf reads a valid pattern.
func exactPatternOf(text string) exactPattern {
	parsed, _ := parsePattern(text)
	p := exactPattern{segments: slices.Clone(parsed.segments)}
	switch {
	case parsed.subtree:
		p.end = "/*"
	case strings.HasSuffix(text, "/{$}"):
		p.end = "/"
	}

	// The parser has folded the literals.
	for i, segment := range strings.Split(text[1:], "/")[:len(p.segments)] {
		if p.segments[i] != "" {
			p.segments[i], _ = url.PathUnescape(segment)
		}
	}
	return p
}

// matches reports whether the path is that of the pattern.
func (e *exactPattern) matches(path string) bool {
	for _, want := range e.segments {
		if path == "" {
			return false
		}
		segment, below := path[1:], ""
		if i := strings.IndexByte(segment, '/'); i >= 0 {
			segment, below = segment[:i], segment[i:]
		}
		if segment == "" || want != "" && want != segment {
			return false
		}
		path = below
	}
	if e.end == "/*" {
		return strings.HasPrefix(path, "/")
	}
	return path == e.end
}

// checkExcept checks Match.Except.
func checkExcept(patterns []string) error {
	if len(patterns) > MaxExcept {
		return fmt.Errorf("%d patterns are more than %d", len(patterns), MaxExcept)
	}

	var errs []error
	for i, text := range patterns {
		switch _, err := parsePattern(text); {
		case text == "":
			errs = append(errs, errors.New("a pattern is empty; write, say, /healthz"))
		case err != nil:
			errs = append(errs, err)
		case text == "/" || strings.HasPrefix(text, "/{") && strings.HasSuffix(text, "...}") &&
			strings.Count(text, "/") == 1:
			errs = append(errs, fmt.Errorf("%q excepts all requests", text))
		case slices.Contains(patterns[:i], text):
			errs = append(errs, fmt.Errorf("%q is named twice", textform.Clip(text)))
		}
	}
	return errors.Join(errs...)
}

// checkHeaders checks Match.Headers.
func checkHeaders(headers map[string]Values) error {
	return checkTable(headers, "headers", textproto.CanonicalMIMEHeaderKey, checkHeader)
}
