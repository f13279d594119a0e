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
	return func(r core.Request) (string, bool) { return shorten(singleLine(r, name)), true }
}

// singleLine returns the value of a header that came in exactly one line, or "".
func singleLine(r core.Request, name string) string {
	lines := r.Header(name)
	if len(lines) != 1 {
		return ""
	}
	return trimSpace(lines[0])
}

// Cookie counts by a digest of the value of the cookie, because most cookies
// worth counting by are credentials. Quotes around the value do not matter, and neither
// does percent-encoding: "a%20b", "a+b", "a b" and "a%2Bb" are one caller, because some
// handlers decode cookies as Gin does, some decode them as paths are decoded, and
// others not at all. A cookie that is missing, empty or sent twice has the key "".
//
// Callers choose their cookies: unless the session is checked before, a new
// cookie is a new caller.
func Cookie(name string) core.KeyFunc {
	return func(r core.Request) (string, bool) { return conceal(decoded(r, cookie(r, name))), true }
}

// cookieUnescaper is a request of a framework whose handlers read unescaped cookies.
// It returns what they read.
type cookieUnescaper interface{ UnescapeCookie(value string) string }

// decoded returns one text for all values that handlers of r may read as one.
func decoded(r core.Request, value string) string {
	if strings.IndexByte(value, '%') >= 0 {
		if u, ok := r.(cookieUnescaper); ok {
			value = u.UnescapeCookie(value)
		} else {
			value = unescape(value)
		}
	}
	return strings.ReplaceAll(value, "+", " ")
}

// unescape decodes every "%" that two hexadecimal digits follow.
func unescape(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if high, low := unhex(s[i+1]), unhex(s[i+2]); high|low < 16 {
				b = append(b, high<<4|low)
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

// unhex returns the value of a hexadecimal digit, and 255 for another byte.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
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

			// Handlers differ about which of two cookies they read, so neither identifies the
			// caller.
			if found {
				return ""
			}
			value, found = trimSpace(v), true
		}
	}

	// Quotes around a value are no part of it to some handlers.
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		return value[1 : n-1]
	}
	return value
}
