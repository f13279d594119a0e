// This file counts by the target of a request.

package keyfuncs

import (
	"strings"

	"github.com/headgate/headgate/core"
)

// Global returns one key for all requests.
func Global(core.Request) (key string, ok bool) { return "", true }

// Route returns the pattern that the router matched, such as "/users/{id}", so that
// all paths which lead there share one key. Where the framework does not know
// the route yet, the key is "".
func Route(r core.Request) (key string, ok bool) { return shorten(r.Route()), true }

// Path returns the decoded path as the caller wrote it. Most paths can be written in
// many ways that lead to one handler: in another case, with an extra slash or
// with another id. Each spelling has its own count: prefer [Route].
func Path(r core.Request) (key string, ok bool) { return shorten(r.Path()), true }

// Method returns the method of the request. HEAD counts as GET, which serves it, and
// all methods that RFC 9110 and RFC 5789 do not name count as "other".
func Method(r core.Request) (key string, ok bool) {
	switch m := r.Method(); m {
	case "GET", "HEAD":
		return "GET", true
	case "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE":
		return m, true
	}
	return "other", true
}

// maxHost is the maximum length of a name in the DNS.
const maxHost = 253

// Host returns the requested host in lower case, without a port and a trailing
// dot; an address is in its shortest form. Routers read a host in many spellings, so
// whatever follows a colon is taken for a port, as in "example.com:abc", and brackets
// around a name do not matter. A host that is neither a name nor an address has the
// key "". A caller can request any host: count by it only where unknown hosts are
// refused before, or in a [Join] with the caller.
func Host(r core.Request) (key string, ok bool) { return HostKey(singleLine(r, "Host")), true }

// HostKey returns the key of [Host] for a Host header with this text.
func HostKey(text string) string {
	// Only an address has a colon without a port behind it.
	host := cutHost(trimSpace(text))
	if strings.IndexByte(host, ':') >= 0 {
		a, ok := parseHost(host)
		if !ok {
			return ""
		}
		return a.ip.String()
	}

	host = strings.TrimSuffix(host, ".")
	if !isHostName(host) {
		return ""
	}
	return strings.ToLower(host)
}

// cutHost returns the host of "host:port" without brackets. It reads all that some
// router reads: net/http.ServeMux accepts any port and a name in brackets, and
// gorilla/mux cuts at the first colon.
func cutHost(s string) string {
	if strings.HasPrefix(s, "[") {
		if end := strings.IndexByte(s, ']'); end >= 0 {
			return s[1:end]
		}
		return ""
	}

	// Several colons are an address if they can be, and otherwise a host with a strange port.
	host, port, found := strings.Cut(s, ":")
	if found && strings.IndexByte(port, ':') >= 0 {
		if _, ok := parseHost(s); ok {
			return s
		}
	}
	return host
}

// isHostName reports whether s consists of labels of letters, digits, hyphens
// and underscores, separated by dots.
func isHostName(s string) bool {
	label := 0
	for i := range len(s) {
		switch c := s[i]; {
		case isAlphanumeric(c), c == '-', c == '_':
			label++
		case c == '.' && label > 0:
			label = 0
		default:
			return false
		}
	}
	return label > 0 && len(s) <= maxHost
}
