package limiter

import (
	"github.com/headgate/headgate/core"
	"strconv"
	"time"
)

// terms are a limit under a rule and the text that clients see of it.
type terms struct {
	limit     core.Limit
	take      core.Op // of no key and no cost yet
	capacity  string
	policy    string // the item of RateLimit-Policy
	remaining string // how the item of RateLimit begins
}

func newTerms(r *Rule, l core.Limit) *terms {
	return &terms{
		limit:     l,
		take:      core.Op{Verb: core.Take, Soft: r.OnLimit.soft(), Rule: r.Name, Limit: l},
		capacity:  strconv.FormatInt(l.Capacity(), 10),
		policy:    policyItem(r.Name, l),
		remaining: `"` + r.Name + `";r=`,
	}
}

// maxInteger is the highest integer of a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// policyItem is the limit as draft-ietf-httpapi-ratelimit-headers writes it. A
// window that is not in whole seconds cannot be written, so it is left out.
func policyItem(rule string, l core.Limit) string {
	b := make([]byte, 0, 64)
	b = append(b, '"')
	b = append(b, rule...)
	b = append(b, `";q=`...)
	b = strconv.AppendInt(b, min(l.Quota, maxInteger), 10)
	switch {
	case l.Leased():
		b = append(b, `;qu="concurrent-requests"`...)
	case l.Period%time.Second == 0:
		b = append(b, ";w="...)
		b = strconv.AppendInt(b, int64(l.Period/time.Second), 10)
	}
	return string(b)
}
