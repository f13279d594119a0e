// This file has the conditions of a match beside method, host and path.

package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"

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
	except  *node // nil for none
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
		if c.except == nil {
			c.except = &node{}
		}
		p, _ := parsePattern(text)
		c.except.add(p, entryAt{methods: allMethods})
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		c.headers = append(c.headers, headerCondition{textproto.CanonicalMIMEHeaderKey(name), m.Headers[name]})
	}
	return c
}

// met reports whether the request of the search, whose paths it holds, meets the conditions.
func (c *conditions) met(s *search) bool {
	for _, h := range c.headers {
		if !h.met(s.request) {
			return false
		}
	}
	return c.except == nil || !s.excepted(c.except)
}

func (h *headerCondition) met(r core.Request) bool {
	lines := r.Header(h.name)
	return h.value == anyValue && len(lines) > 0 || slices.Contains(lines, h.value)
}

// excepted reports whether every spelling of the path meets a pattern of the tree. The route is
// none of them: it says what a router makes of the path, and may cover others.
func (s *search) excepted(tree *node) bool {
	one := search{any: true, method: unnamed}
	for i := range s.asked {
		one.hit = false
		if one.walk(tree, s.paths[i].path, false); !one.hit {
			return false
		}
	}
	return s.asked > 0
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
