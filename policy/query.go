// This file has the conditions of a match on the query.

package policy

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/textform"
)

// queried is a request that has a query. RawQuery returns it as the client encoded it.
type queried interface{ RawQuery() string }

// terms are the parameters that the policies of an index ask for. Each value of each name has a
// number, so that the query of a request is read once, however many policies there are.
type terms struct {
	numbers map[string]map[string]int // by name and value
	n       int
}

// of returns the numbers of the values of each name.
func (t *terms) of(query map[string]Values) (conditions [][]int) {
	for name, values := range query {
		if t.numbers == nil {
			t.numbers = map[string]map[string]int{}
		}
		if t.numbers[name] == nil {
			t.numbers[name] = map[string]int{}
		}

		var anyOf []int
		for _, value := range values {
			// Policies that ask for the same share its number.
			number, known := t.numbers[name][value]
			if !known {
				number = t.n
				t.numbers[name][value] = number
				t.n++
			}
			anyOf = append(anyOf, number)
		}
		conditions = append(conditions, anyOf)
	}
	return conditions
}

// facts are what policies ask of one request beyond what an index has trees for. They are
// found out when the first of them asks.
type facts struct {
	read, claimed bool
	few           uint64   // which of the first 64 terms the request has
	more          []uint64 // which of the others
	claims        map[string]any
}

// has reports whether the request has one of the terms.
func (s *search) has(anyOf []int) bool {
	f := &s.facts
	if !f.read {
		f.read = true
		if r, ok := s.request.(queried); ok {
			f.readQuery(&s.index.terms, r.RawQuery())
		}
	}

	for _, n := range anyOf {
		if n < 64 && f.few>>n&1 == 1 || n >= 64 && f.more != nil && f.more[n/64-1]>>(n%64)&1 == 1 {
			return true
		}
	}
	return false
}

// readQuery finds the terms that the query has. It reads parameters as net/http does: one with a
// semicolon, or with a percent sign that escapes nothing, is none.
func (f *facts) readQuery(t *terms, query string) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if strings.Contains(pair, ";") {
			continue
		}

		// The names that no policy asks for are most of them.
		name, value, _ := strings.Cut(pair, "=")
		name, err := unescaped(name)
		values := t.numbers[name]
		if err != nil || values == nil {
			continue
		}
		if value, err = unescaped(value); err != nil {
			continue
		}

		// The value may be asked for, and that there is any.
		for _, text := range [...]string{value, anyValue} {
			if number, ok := values[text]; ok {
				f.set(number, t.n)
			}
		}
	}
}

// set notes that the request has the term of n.
func (f *facts) set(number, n int) {
	if number < 64 {
		f.few |= 1 << number
		return
	}
	if f.more == nil {
		f.more = make([]uint64, (n-1)/64)
	}
	f.more[number/64-1] |= 1 << (number % 64)
}

// unescaped decodes a name or a value. It allocates only if there is something to decode.
func unescaped(text string) (string, error) {
	if !strings.ContainsAny(text, "%+") {
		return text, nil
	}
	return url.QueryUnescape(text)
}

// checkQuery checks Match.Query.
func checkQuery(query map[string]Values) error {
	return checkTable(query, "parameters", asIs, checkTableName("parameter"))
}

// doubtQuery finds names and values that are written as in a URL, where those of a request are
// decoded.
func doubtQuery(query map[string]Values) error {
	var errs []error
	for name, values := range query {
		for _, text := range append([]string{name}, values...) {
			if plain, err := url.QueryUnescape(text); err == nil && strings.Contains(text, "%") {
				errs = append(errs, fmt.Errorf("%q is encoded; those of a request are decoded, as %q",
					textform.Clip(text), textform.Clip(plain)))
			}
		}
		if strings.ContainsAny(name, "?&=") {
			errs = append(errs, fmt.Errorf("%q is the name of a parameter; its value stands apart",
				textform.Clip(name)))
		}
	}

	// Maps have no order, and the doubts are told in one.
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
