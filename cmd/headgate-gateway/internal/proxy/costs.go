// This file keeps the headers that say what requests cost.

package proxy

import (
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate/policy"
)

// costHeaders are the headers by which policies say what a request costs, in canonical form.
type costHeaders struct {
	reads    bool     // a policy reads bodies of requests
	asked    []string // of requests
	answered []string // of answers
}

// costs holds those of the policies in force.
type costs struct{ headers atomic.Pointer[costHeaders] }

// set takes the headers of the policies that are about to be in force.
func (c *costs) set(policies policy.Set) {
	// Several policies may name one header.
	var h costHeaders
	for i := range policies {
		cost := &policies[i].Cost
		h.asked = appendName(h.asked, cost.Header)
		h.answered = appendName(h.answered, cost.AnswerHeader)
		h.reads = h.reads || cost.Usage != ""
	}

	c.headers.Store(&h)
}

// appendName appends the name of a header, unless it is "" or there already.
func appendName(names []string, name string) []string {
	if name = http.CanonicalHeaderKey(name); name == "" || slices.Contains(names, name) {
		return names
	}
	return append(names, name)
}

// inForce returns the headers, which must not be changed.
func (c *costs) inForce() *costHeaders {
	if h := c.headers.Load(); h != nil {
		return h
	}
	return &costHeaders{}
}
