// This file finds upstreams that never get a request.

package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
)

// hidden returns an error for each upstream whose requests all go to one before it.
func hidden(list []Options, index *policy.Index) error {
	var errs []error
	for i := range list {
		if by := hiddenBy(list, i, index); by >= 0 {
			errs = append(errs, &Error{i, list[i].Name, &FieldError{"match", fmt.Errorf(
				"it never gets a request, as %q before it matches all of its requests", textform.Clip(list[by].Name))}})
		}
	}
	return errors.Join(errs...)
}

// hiddenBy returns the place of an upstream before i that matches all requests of i, or -1. It asks
// the index about requests of i that are as unlike others as they can be: what stands for any text
// is a text that no pattern has.
func hiddenBy(list []Options, i int, index *policy.Index) int {
	var by []int
	for n, r := range samples(&list[i].Match) {
		found := slices.DeleteFunc(index.Select(nethttp.Request(r), nil), func(j int) bool {
			// What headers, a query and exceptions say of a request is not known of all requests.
			m := &list[j].Match
			return j >= i || len(m.Headers)+len(m.Query)+len(m.Except) > 0
		})
		if n == 0 {
			by = found
		}
		by = slices.DeleteFunc(by, func(j int) bool { return !slices.Contains(found, j) })
	}

	if len(by) == 0 {
		return -1
	}

	return by[0]
}

// unlike is a text that no pattern has as a literal.
const unlike = "\x01unlike"

// samples returns requests that match. What matches all of them, except by a header, matches all
// requests that match.
func samples(m *policy.Match) (list []*http.Request) {
	// Without methods a request has one that no upstream names.
	methods := m.Methods
	if len(methods) == 0 {
		methods = []string{"UNLIKE"}
	}

	host := m.Host
	switch below, isBelow := strings.CutPrefix(host, "*."); {
	case host == "":
		host = "unlike.invalid"
	case isBelow:
		host = "unlike." + below
	}

	for _, method := range methods {
		for _, path := range paths(m.Path) {
			r := &http.Request{Method: method, Host: host, URL: &url.URL{Path: path}, Header: http.Header{}}
			for name, values := range m.Headers {
				r.Header.Set(name, values[0])
			}
			list = append(list, r)
		}
	}

	return list
}

// paths returns the shortest path of a valid pattern, and one longer than any pattern if all below
// it matches.
func paths(pattern string) []string {
	texts := strings.Split(strings.TrimPrefix(pattern, "/"), "/")
	last := len(texts) - 1
	end := texts[last]
	subtree := end == "" || strings.HasSuffix(end, "...}")
	if subtree || end == "{$}" {
		texts = texts[:last]
	}

	// Patterns are encoded, and paths of requests decoded.
	short := ""
	for _, text := range texts {
		if strings.HasPrefix(text, "{") {
			text = unlike
		} else if plain, err := url.PathUnescape(text); err == nil {
			text = plain
		}
		short += "/" + text
	}

	if !subtree {
		return []string{short + "/"}
	}

	return []string{short + "/", short + strings.Repeat("/"+unlike, 40)}
}
