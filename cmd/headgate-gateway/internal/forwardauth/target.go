package forwardauth

import (
	"net/url"
	"strings"
)

// parseTarget reads path and query of a request into u, as [url.ParseRequestURI] does, and
// reports whether s is the target of a request. A target with a "#" is not one: servers
// disagree about whether the path ends there, so a client could ask for one path and be
// counted under another.
func parseTarget(u *url.URL, s string) bool {
	if s == "*" {
		*u = url.URL{Path: "*"}
		return true
	}

	path, query, hasQuery := strings.Cut(s, "?")
	if path == "" || path[0] != '/' {
		return false
	}
	for i := range len(query) {
		if c := query[i]; c < ' ' || c == 0x7f || c == '#' {
			return false
		}
	}

	// A path with escapes, or with bytes that need one, has to be decoded.
	for i := range len(path) {
		if !usual[path[i]] {
			return parseUnusual(u, s)
		}
	}
	*u = url.URL{Path: path, RawQuery: query, ForceQuery: hasQuery && query == ""}
	return true
}

// usual holds the bytes that a path holds as they are: their encoding is the byte itself.
// A path of such bytes is parsed without a copy.
var usual = func() (set [256]bool) {
	for c := range 256 {
		set[c] = isAlphanumeric(byte(c)) || strings.IndexByte("/-_.~$&+,:;=@", byte(c)) >= 0
	}
	return set
}()

// parseUnusual reads a target with escapes, or with bytes that should be escaped.
func parseUnusual(u *url.URL, s string) bool {
	if strings.Contains(s, "#") {
		return false
	}
	parsed, err := url.ParseRequestURI(s)
	if err != nil {
		return false
	}
	*u = *parsed
	return true
}
