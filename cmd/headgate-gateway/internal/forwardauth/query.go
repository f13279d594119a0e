package forwardauth

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/headgate/headgate/limiter"
)

// authQuery is what the query of the auth URL asks for.
type authQuery struct {
	limiter *limiter.Limiter
	deny    int // the status of an answer that lets no request pass; 0 means its own
}

// readQuery reads the query of the auth URL. Its parameters are those that the
// configuration of the gateway has, so the error may hold them.
func (h *handler) readQuery(query string) (q authQuery, err error) {
	q.limiter = h.limiters[""]
	app, status := false, false

	// A query without escapes, as gateways send it, is read in place.
	escaped := strings.ContainsAny(query, "%+")
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(pair, "=")
		if escaped {
			if name, value, err = unescape(name, value); err != nil {
				return q, err
			}
		}

		switch {
		case name == "app" && !app:
			app = true
			if q.limiter = h.limiters[value]; q.limiter == nil || value == "" {
				return q, fmt.Errorf("app: there is no application %s", quote(value))
			}
		case name == "deny_status" && !status:
			status = true
			if q.deny, err = denyStatus(value); err != nil {
				return q, err
			}
		case name == "app" || name == "deny_status":
			return q, fmt.Errorf("%s is there twice", name)
		default:
			return q, fmt.Errorf("there is no parameter %s; there are app and deny_status", quote(name))
		}
	}
	return q, nil
}

// denyStatus reads a status of an error.
func denyStatus(s string) (int, error) {
	if n, err := strconv.Atoi(s); err == nil && len(s) == 3 && n >= 400 && n <= 599 {
		return n, nil
	}
	return 0, fmt.Errorf("deny_status: %s is not a status from 400 to 599", quote(s))
}

// unescape decodes name and value.
func unescape(name, value string) (string, string, error) {
	name, err1 := url.QueryUnescape(name)
	value, err2 := url.QueryUnescape(value)
	if err1 != nil || err2 != nil {
		return "", "", fmt.Errorf("an escape in the query is not valid")
	}
	return name, value, nil
}

// quote returns at most 64 bytes of s, in quotes and without control characters.
func quote(s string) string { return strconv.QuoteToASCII(s[:min(len(s), 64)]) }
