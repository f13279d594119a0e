// This file reads what a gateway says about the request that it asks for.
//
// The gateway sends a request of its own, whose headers name the original one:
//
//	method   X-Original-Method                     or X-Forwarded-Method
//	target   X-Original-URI or X-Original-URL      or X-Forwarded-Uri
//	host     that of X-Original-URL                or X-Forwarded-Host
//	caller   X-Forwarded-For, or the header that callers.Options names
//
// They are believed only from trusted proxies, and if they leave a client nothing to
// forge; see claim.read. All other headers are those of the original request. The scheme is
// not read, because no rule depends on it, and neither is Forwarded: no gateway writes
// there what a rule could use, so it would be the client's.

package forwardauth

import (
	"net/http"
	"strings"
)

// The longest values that are read. nginx accepts no longer request line than 8 kB unless
// it is told to, and a name of a host has at most 253 bytes.
const (
	maxMethod = 32
	maxTarget = 16 << 10
	maxHost   = 262 // a name and a port
)

// claim is what the headers say about the original request. Its texts are parts of the
// headers.
type claim struct {
	method string
	target string // path and query, as the client sent them
	host   string
}

// fault says why headers are not believed. It is one of a few constant texts, so it may
// be logged and sent.
type fault string

// The faults.
const (
	noOriginal fault = "no header names the original request: send X-Original-Method and X-Original-URI, " +
		"or X-Forwarded-Method and X-Forwarded-Uri"
	noMethod     fault = "X-Original-URI or X-Original-URL came without X-Original-Method"
	noTarget     fault = "X-Original-Method came without X-Original-URI or X-Original-URL"
	halfForward  fault = "of X-Forwarded-Method and X-Forwarded-Uri only one came"
	noHost       fault = "X-Forwarded-Host is missing"
	noCaller     fault = "X-Forwarded-For is missing"
	repeated     fault = "a header that names the original request came in several lines"
	contradicted fault = "headers name different original requests; " +
		"the gateway has to remove those that it does not set"
	badMethod fault = "the original method is not a method"
	badTarget fault = "the original URI is not the target of a request"
	badURL    fault = "X-Original-URL is not an absolute URL"
	badHost   fault = "the original host is not a host"
	passedOn  fault = "the gateway asks with the query of the client: end the path of its URL with a question mark"
	tunnel    fault = "the request asks for a protocol in which requests would not be counted: " +
		"have the gateway remove Upgrade, or name it by -upgrade"
	longTarget fault = "the original URI is longer than 16 kB"
)

// read returns what the headers say, or why they are not believed. Any of them may be
// forged by a client whose gateway passes it on. So a request is read only if a gateway
// that sets the headers of one family leaves the client nothing to add:
//
//   - A family is complete or absent: X-Original-Method with X-Original-URI or
//     X-Original-URL, and X-Forwarded-Method with X-Forwarded-Uri.
//   - If both are there, they say the same.
//   - The host is that of X-Original-URL, or else X-Forwarded-Host, and there is one. The
//     two are the same unless X-Forwarded-Method and -Uri are absent: their gateways set
//     X-Forwarded-Host too, and gateways that set X-Original-URL may pass on the client's.
//   - Each header that is read comes in one line.
func (c *claim) read(h http.Header) fault {
	var original, forwarded claim
	if f := original.readOriginal(h); f != "" {
		return f
	}
	if f := forwarded.readForwarded(h); f != "" {
		return f
	}

	// Of two families that agree either may be taken; the first may name a host besides.
	switch {
	case original.method == "" && forwarded.method == "":
		return noOriginal
	case original.method == "":
		*c = forwarded
	case forwarded.method == "":
		*c = original
	case original.method != forwarded.method || original.target != forwarded.target:
		return contradicted
	default:
		*c = original
	}

	if f := c.readHost(h, forwarded.method != ""); f != "" {
		return f
	}
	return c.check()
}

// readOriginal reads the headers that are customary with nginx.
func (c *claim) readOriginal(h http.Header) fault {
	method, f1 := singleValue(h, "X-Original-Method")
	target, f2 := singleValue(h, "X-Original-Uri")
	address, f3 := singleValue(h, "X-Original-Url")

	switch {
	case f1 != "" || f2 != "" || f3 != "":
		return repeated
	case method == "" && target == "" && address == "":
		return ""
	case method == "":
		return noMethod
	case target == "" && address == "":
		return noTarget
	}

	c.method, c.target = method, target
	if address == "" {
		return ""
	}

	// A URL has a target too. Of two that differ one is the client's, which the gateway passes on.
	host, path, ok := cutURL(address)
	if !ok {
		return badURL
	}
	if target != "" && target != path {
		return contradicted
	}

	c.target, c.host = path, host
	return ""
}

// readForwarded reads the headers of Caddy, Traefik and APISIX.
func (c *claim) readForwarded(h http.Header) fault {
	method, f1 := singleValue(h, "X-Forwarded-Method")
	target, f2 := singleValue(h, "X-Forwarded-Uri")
	if f1 != "" || f2 != "" {
		return repeated
	}
	if (method == "") != (target == "") {
		return halfForward
	}
	c.method, c.target = method, target
	return ""
}

// readHost reads X-Forwarded-Host. compare reports whether it counts beside the host of
// X-Original-URL.
func (c *claim) readHost(h http.Header, compare bool) fault {
	if c.host != "" && !compare {
		return ""
	}

	host, f := singleValue(h, "X-Forwarded-Host")
	switch {
	case f != "":
		return f
	case host == "":
		return noHost
	case c.host != "" && !strings.EqualFold(c.host, host):
		return contradicted
	}
	c.host = host
	return ""
}

// check looks at the values. The target is checked further when it is parsed.
func (c *claim) check() fault {
	switch {
	case !isMethod(c.method):
		return badMethod
	case len(c.target) > maxTarget:
		return longTarget
	case c.target[0] != '/' && (c.target != "*" || c.method != http.MethodOptions):
		return badTarget
	case !isHost(c.host):
		return badHost
	}
	return ""
}

// singleValue returns the value of a header that may come in one line only, and "" if it did not
// come. name is in canonical form.
func singleValue(h http.Header, name string) (string, fault) {
	switch lines := h[name]; len(lines) {
	case 0:
		return "", ""
	case 1:
		return lines[0], ""
	}
	return "", repeated
}

// cutURL splits an absolute URL. The host ends only at a slash, because a client chooses
// it: one that holds a "?" must not become a host and a path of the client's choice.
func cutURL(s string) (host, target string, ok bool) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return "", "", false
	}
	i := strings.IndexByte(rest, '/')
	if i <= 0 {
		return "", "", false
	}
	return rest[:i], rest[i:], true
}

// isMethod reports whether s is a token of RFC 9110 of at most maxMethod bytes. The usual methods
// need no look at their bytes.
func isMethod(s string) bool {
	switch s {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS":
		return true
	}

	if s == "" || len(s) > maxMethod {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return true
}

// isHost reports whether s has only the bytes of a name or an address with or without a
// port, and at most maxHost of them.
func isHost(s string) bool {
	if s == "" || len(s) > maxHost {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && strings.IndexByte("-.:_[]", c) < 0 {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
