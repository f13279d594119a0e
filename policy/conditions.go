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

const (
	// MaxExcept is the maximum number of patterns of Match.Except.
	MaxExcept = 32

	// MaxHeaders is the maximum number of Match.Headers.
	MaxHeaders = 8

	// maxHeaderValue is the maximum length in bytes of a value of Match.Headers.
	maxHeaderValue = 256

	// anyValue stands for all values of a header.
	anyValue = "*"
)

// conditions are those of one policy that an [Index] has no tree for.
type conditions struct {
	except  []exactPattern
	headers []headerCondition
}

// headerCondition is one of Match.Headers, with the canonical name.
type headerCondition struct{ name, value string }

// conditions returns those of a valid match, or nil if it has none.
func (m *Match) conditions() *conditions {
	if len(m.Except) == 0 && len(m.Headers) == 0 {
		return nil
	}

	c := &conditions{}
	for _, text := range m.Except {
		c.except = append(c.except, exactPatternOf(text))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		c.headers = append(c.headers, headerCondition{textproto.CanonicalMIMEHeaderKey(name), m.Headers[name]})
	}
	return c
}

// met reports whether the request meets the conditions.
func (c *conditions) met(r core.Request) bool {
	for _, h := range c.headers {
		if !h.met(r) {
			return false
		}
	}
	return len(c.except) == 0 || !c.excepts(r)
}

func (h *headerCondition) met(r core.Request) bool {
	lines := r.Header(h.name)
	return h.value == anyValue && len(lines) > 0 || slices.Contains(lines, h.value)
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
func checkHeaders(headers map[string]string) error {
	if len(headers) > MaxHeaders {
		return fmt.Errorf("%d headers are more than %d", len(headers), MaxHeaders)
	}

	var errs []error
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		canonical, value := textproto.CanonicalMIMEHeaderKey(name), headers[name]
		if err := checkHeader(name); err != nil {
			errs = append(errs, err)
			continue
		}
		if seen[canonical] {
			errs = append(errs, fmt.Errorf("the header %s is named twice", canonical))
		}
		seen[canonical] = true

		switch err := textform.Check(value, maxHeaderValue); {
		case err != nil:
			errs = append(errs, fmt.Errorf("the value of %s: %w", canonical, err))
		case value == "":
			errs = append(errs, fmt.Errorf("the value of %s is empty; write %q for any", canonical, anyValue))
		case strings.TrimSpace(value) != value || strings.ContainsAny(value, "\r\n\t"):
			errs = append(errs, fmt.Errorf("the value of %s has space at an end, or a line break or tab, "+
				"which no request has there", canonical))
		}
	}
	return errors.Join(errs...)
}
