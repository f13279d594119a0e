package readme

import (
	"regexp"
	"slices"
	"strings"
)

// foreign are the names of others that pages have, by whose they are. All other names are ours, or
// the code has them too.
var foreign = map[string]string{
	"Anthropic":   "message_start message_delta",
	"Apache":      "HostnameLookups",
	"APISIX":      "underscores_in_headers",
	"Bedrock":     "InvokeModelWithResponseStream",
	"Caddy":       "basic_auth",
	"Echo":        "RealIP Echo.IPExtractor",
	"Envoy":       "jwt_authn forward_payload_header:",
	"HAProxy":     "jwt_verify",
	"Istio":       "EnvoyFilter",
	"the MCP SDK": "InputRequiredResult MaxRequestBodyBytes",
	"OpenAI":      "previous_response_id",
	"tollbooth":   "SetIgnoreURL(true)",
	"Traefik":     "HeaderRegexp",
	"mistakes":    "a_b", // which the pages say are not to be written
}

// leftColumn is the first cell of the tables of docs/migrating.md and docs/peers.md: it has what
// the other library has.
var leftColumn = regexp.MustCompile(`^\|[^|]*\|`)

// isForeign reports whether inline code is a name of others.
func isForeign(p *page, s span) bool {
	first, _, _ := strings.Cut(s.text, " ")
	for _, names := range foreign {
		if slices.Contains(strings.Fields(names), first) {
			return true
		}
	}
	line := strings.Split(p.text, "\n")[s.line-1]
	return (p.path == "docs/migrating.md" || p.path == "docs/peers.md") &&
		strings.Contains(leftColumn.FindString(line), "`"+s.text+"`")
}
