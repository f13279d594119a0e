package replay

import (
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/policy"
)

// LeftOut is a policy that cannot be replayed, because the log lacks what it needs.
type LeftOut struct {
	Policy string `json:"policy"`
	Needs  string `json:"needs"`
}

// usable returns the policies that a log with these fields is enough for, and the others.
func usable(set policy.Set, has accesslog.Fields, users bool) (use policy.Set, out []LeftOut) {
	for i := range set {
		if needs := missing(&set[i], has, users); needs != "" {
			out = append(out, LeftOut{set[i].Name, needs})
		} else {
			use = append(use, set[i])
		}
	}
	return use, out
}

// missing returns what a valid policy needs and the log has not, or "".
func missing(p *policy.Policy, has accesslog.Fields, users bool) string {
	for part := range strings.SplitSeq(p.Key, "+") {
		if needs := missingPart(part, has, users); needs != "" {
			return needs
		}
	}

	// Headers are looked for as those of keys are.
	for _, name := range slices.Sorted(maps.Keys(p.Match.Headers)) {
		if needs := missingPart("header:"+textproto.CanonicalMIMEHeaderKey(name), has, users); needs != "" {
			return needs
		}
	}

	// The rest of a policy may need more than its key.
	networks := len(p.Access.Allow.Networks) + len(p.Access.Deny.Networks)
	switch {
	case networks > 0 && has&accesslog.HasAddress == 0:
		return "addresses"
	case p.Match.Host != "" && has&accesslog.HasHost == 0:
		return "the host"
	case len(p.Match.Query) > 0 && has&accesslog.HasQuery == 0:
		return "queries"
	case len(p.Match.Claims) > 0:
		return "the claims of a token"
	case p.Plans != nil:
		return "the plan of a caller"
	case p.Limit.Leased():
		return "the ends of requests"
	}

	return ""
}

// costNeeds returns what says what a request costs and no log has, or "".
func costNeeds(c *policy.Cost) string {
	switch {
	case c.Header != "":
		return "the header " + textproto.CanonicalMIMEHeaderKey(c.Header)
	case c.AnswerHeader != "":
		return "the header " + textproto.CanonicalMIMEHeaderKey(c.AnswerHeader) + " of answers"
	case c.Usage != "":
		return "the tokens of answers"
	}
	return ""
}

// missingPart is missing for one of the joined recipes of a key.
func missingPart(part string, has accesslog.Fields, users bool) string {
	needs := map[accesslog.Fields]string{accesslog.HasAddress: "addresses", accesslog.HasHost: "the host",
		accesslog.HasAgent: "the header User-Agent", accesslog.HasReferer: "the header Referer",
		accesslog.HasUser: "users"}
	field := accesslog.Fields(0)

	// Some keys are never in a log, and others are if the format has them.
	kind, name, _ := strings.Cut(part, ":")
	switch kind, _, _ = strings.Cut(kind, "/"); kind {
	case "ip":
		field = accesslog.HasAddress
	case "host":
		field = accesslog.HasHost
	case "user":
		if !users {
			return "the user"
		}
		field = accesslog.HasUser
	case "header":
		switch strings.ToLower(name) {
		case "user-agent":
			field = accesslog.HasAgent
		case "referer":
			field = accesslog.HasReferer
		default:
			return "the header " + name
		}
	case "cookie":
		return "the cookie " + name
	case "api-key":
		return "the API key"
	case "basic-auth":
		return "the header Authorization"
	case "route":
		return "the route"
	}

	if field != 0 && has&field == 0 {
		return needs[field]
	}

	return ""
}
