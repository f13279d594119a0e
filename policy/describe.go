// This file describes policies in words.

package policy

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/explain"
	"github.com/headgate/headgate/limiter"
)

// Describe returns a sentence about what the policy does, without a full stop:
// "100 requests a minute for each API key, at most 20 at once; others wait up to
// 500ms". For a policy that is not valid it returns "not a valid policy".
func (p Policy) Describe() string {
	if p.Validate() != nil {
		return "not a valid policy"
	}
	parts, err := parseRecipe(p.Key)
	if err != nil {
		return "not a valid policy"
	}

	s := p.amount() + whom(parts) + explain.Manner(p.Limit) + explain.Debt(p.Limit) + costWords(&p)
	s += p.byPlan() + p.byKey() + p.otherwise() + shareWords(&p) + p.banned() + p.withoutStore()
	s += p.byList() + answerWords(&p)
	if p.Mode == Off {
		s += " (switched off)"
	}
	return s
}

// DescribeLimit returns a limit in words: "100 requests a minute, at most 20 at once". For a
// limit that is not valid it returns "not a valid limit".
func DescribeLimit(l core.Limit) string {
	return explain.Words(l)
}

// amount returns, say, "100 POST requests a minute to /login on api.example.com".
func (p *Policy) amount() string {
	noun := "request"
	if len(p.Match.Methods) > 0 {
		noun = list(p.Match.Methods, "or") + " request"
	}

	n := explain.Volume(p.Limit, noun)
	if unit := unitOf(p); unit != "request" {
		n = explain.Volume(p.Limit, unit) + " for " + noun + "s"
	}
	if p.Match.Path != "" {
		n += " to " + p.Match.Path
	}
	if len(p.Match.Except) > 0 {
		n += " except to " + list(p.Match.Except, "and")
	}
	if name, below := strings.CutPrefix(p.Match.Host, "*."); below {
		n += " on hosts below " + name
	} else if name != "" {
		n += " on " + name
	}
	if words := p.Match.tableWords(); len(words) > 0 {
		n += " with " + list(words, "and")
	}
	return n
}

// tableWords returns, say, "the header X-Plan: free" and "the parameter export".
func (m *Match) tableWords() []string {
	return slices.Concat(tableWords("the header", m.Headers, textproto.CanonicalMIMEHeaderKey),
		tableWords("the parameter", m.Query, asIs), tableWords("the claim", m.Claims, asIs))
}

// unitOf returns what the limits of the policy count, in the singular.
func unitOf(p *Policy) string {
	switch {
	case p.Cost.Usage == usageTokens:
		return "token"
	case !p.Cost.IsOne():
		return "unit"
	}
	return "request"
}

// costWords says what a request takes.
func costWords(p *Policy) string {
	c := &p.Cost
	most := ""
	if c.AtMost > 0 {
		most = fmt.Sprintf(", at most %d", c.AtMost)
	}
	before := fmt.Sprintf("%d charged before it unless the request says how many%s", c.Estimate, most)

	switch {
	case c.Header != "":
		return fmt.Sprintf(", a request as many as the header %s of a trusted proxy says%s, and %d without",
			textproto.CanonicalMIMEHeaderKey(c.Header), most, max(1, c.Default))
	case c.AnswerHeader != "":
		return fmt.Sprintf(", a request as many as the header %s of its answer says%s, with %d charged before it",
			textproto.CanonicalMIMEHeaderKey(c.AnswerHeader), most, c.Estimate)
	case c.Usage == usageTokens:
		return ", as many as each answer says that it has used, with " + before
	case c.Usage == usageCost:
		return fmt.Sprintf(", a millionth of the price each, by the tokens that each answer says that it has used and "+
			"the prices of %d %s, with %s", len(c.Prices), explain.Plural(int64(len(c.Prices)), "model"), before)
	case c.Units <= 1:
		return ""
	}
	return fmt.Sprintf(", %d a request", c.Units)
}

// answerWords says which answers give the units back.
func answerWords(p *Policy) string {
	switch {
	case len(p.Refund) > 0:
		return "; an answer with " + list(p.Refund, "or") + " does not count"
	case len(p.CountOnly) > 0:
		return "; only an answer with " + list(p.CountOnly, "or") + " counts"
	}
	return ""
}

// byPlan describes the limits of the plans, where they differ from that of others.
func (p *Policy) byPlan() string {
	s := ""
	for _, name := range p.planNames() {
		plan := p.Plans[name]
		s += "; with the plan " + name + " " + explain.Volume(plan, unitOf(p))
		for _, part := range []func(core.Limit) string{explain.Manner, explain.Debt} {
			if words := part(plan); words != part(p.Limit) {
				s += words
			}
		}
	}
	return s
}

// byKey says how many keys have a limit of their own. It names none, as a key may be a person.
func (p *Policy) byKey() string {
	if len(p.Overrides) == 0 {
		return ""
	}
	if n := len(p.Overrides); n > 1 {
		return fmt.Sprintf("; %d keys have limits of their own", n)
	}
	return "; 1 key has a limit of its own"
}

// byList describes the lists of callers.
func (p *Policy) byList() string {
	s := ""
	if !p.Access.Allow.IsZero() {
		s += "; not limited: " + p.Access.Allow.count()
	}

	denied := "; refused at once: "
	if p.Access.DenyStatus == 429 {
		denied = "; refused at once with 429: "
	}

	// All others include those on the list of the denied.
	switch {
	case p.Access.DenyOthers:
		s += denied + "all other callers"
	case !p.Access.Deny.IsZero():
		s += denied + p.Access.Deny.count()
	}
	return s
}

// count returns, say, "2 networks and 1 key".
func (c *Callers) count() string {
	var parts []string
	for _, kind := range []struct {
		n    int
		noun string
	}{{len(c.Networks), "network"}, {len(c.Keys), "key"}} {
		if n := int64(kind.n); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, explain.Plural(n, kind.noun)))
		}
	}
	return list(parts, "and")
}

// otherwise describes what happens to requests over the limit.
func (p *Policy) otherwise() string {
	action, _ := parseAction(p.OnLimit) // the policy is valid
	switch {
	case p.Mode == Shadow:
		return "; others are counted and pass (in shadow)"
	case action == limiter.Degrade:
		return "; others get a cheaper answer"
	case action.MaxWait() > 0:
		return "; others wait up to " + strings.TrimPrefix(action.String(), "wait ")
	}
	return "; others are refused"
}

func (p *Policy) withoutStore() string {
	switch p.OnStoreError {
	case "open":
		return "; if the store fails, all pass"
	case "closed":
		return "; if the store fails, all are refused"
	case "local":
		return "; if the store fails, each instance counts for itself"
	}
	return ""
}

// whom returns, say, " for each API key".
func whom(parts []recipePart) string {
	if parts[0].kind == "global" {
		return " for all callers together"
	}
	nouns := make([]string, len(parts))
	for i, p := range parts {
		nouns[i] = p.noun()
	}
	return " for each " + list(nouns, "and")
}

func (r recipePart) noun() string {
	switch r.kind {
	case "ip":
		if r.bits > 0 {
			return fmt.Sprintf("address (IPv6 by /%d network)", r.bits)
		}
		return "address"
	case "header":
		return "value of the header " + r.name
	case "cookie":
		return "value of the cookie " + r.name
	case "api-key":
		return "API key"
	case "basic-auth":
		return "name of a Basic login"
	}
	return r.kind
}

// list returns "a", "a and b", or "a, b and c".
func list(words []string, and string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " " + and + " " + words[last]
}
