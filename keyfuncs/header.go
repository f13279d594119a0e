package keyfuncs

import (
	"net/textproto"
	"strings"

	"github.com/headgate/headgate/core"
)

// Header counts by the value of the header without the space around it. A header that
// is missing, empty or sent in several lines has the key "".
//
// Callers choose their headers. Use it for headers that only a gateway can set.
// For credentials use [APIKey], which stores a digest.
func Header(name string) core.KeyFunc {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return func(r core.Request) (string, bool) { return shorten(line(r, name)), true }
}

// line returns the value of a header that came in exactly one line, or "".
func line(r core.Request, name string) string {
	lines := r.Header(name)
	if len(lines) != 1 {
		return ""
	}
	return trimSpace(lines[0])
}

// Cookie counts by a digest of the value of the cookie, because most cookies
// worth counting by are credentials. Quotes around the value do not matter. A cookie
// that is missing, empty or sent twice has the key "".
//
// Callers choose their cookies: unless the session is checked before, a new
// cookie is a new caller.
func Cookie(name string) core.KeyFunc {
	return func(r core.Request) (string, bool) { return conceal(cookie(r, name)), true }
}

// cookie returns the value of the cookie with that name, or "" unless there is
// exactly one.
func cookie(r core.Request, name string) string {
	value, found := "", false
	for _, pairs := range r.Header("Cookie") {
		for pair, more := "", true; more; {
			pair, pairs, more = strings.Cut(pairs, ";")
			k, v, ok := strings.Cut(pair, "=")
			if !ok || trimSpace(k) != name {
				continue
			}
			if found {
				return ""
			}
			value, found = trimSpace(v), true
		}
	}
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		return value[1 : n-1]
	}
	return value
}
