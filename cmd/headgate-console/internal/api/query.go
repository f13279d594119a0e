package api

import (
	"net/url"
	"slices"
	"strconv"
	"time"
)

// query reads the query of a request and collects its mistakes.
type query struct {
	values url.Values
	faults []fault
}

// readQuery reads the parameters of a request. Unknown and repeated parameters are
// mistakes.
func (c *call) readQuery(known []string) error {
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return malformed("the query cannot be read")
	}

	// In the order of the names, so that the same query has the same answer.
	c.query = query{values: values}
	for _, name := range sortedKeys(values) {
		switch {
		case !slices.Contains(known, name):
			c.query.addFault(name, "the parameter is not known")
		case len(values[name]) > 1:
			c.query.addFault(name, "it is repeated")
		}
	}
	return c.query.err()
}

// addFault adds a mistake in a parameter.
func (q *query) addFault(name, message string) {
	q.faults = append(q.faults, fault{Field: clip(name), Message: message})
}

// text returns a parameter, or "".
func (q *query) text(name string) string { return q.values.Get(name) }

// number returns a parameter that is not negative, or 0.
func (q *query) number(name string) int64 {
	s := q.text(name)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		q.addFault(name, "it is not a whole number, 0 or more")
	}
	return n
}

// maxInt is the largest int of 32-bit platforms.
const maxInt = 1<<31 - 1

// small returns a parameter like number, cut to maxInt.
func (q *query) small(name string) int { return int(min(q.number(name), maxInt)) }

// instant returns a parameter, or the zero time.
func (q *query) instant(name string) time.Time {
	s := q.text(name)
	if s == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil || at.Year() < 1970 || at.Year() > 9999 {
		q.addFault(name, "it is not a time such as 2026-01-31T12:00:00Z")
		return time.Time{}
	}
	return at
}

// err returns the collected mistakes, or nil.
func (q *query) err() error {
	if len(q.faults) > 0 {
		return invalid(q.faults...)
	}
	return nil
}
