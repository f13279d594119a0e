package keyfuncs

import "strings"

// rfc7239 is the list of the Forwarded header:
//
//	for=192.0.2.1;proto=https, for="[2001:db8::1]:4711";by=_edge
//
// Gateways are less strict than the RFC when they write it, so these are read too: values
// with ":", "[" and "]" and without quotes, such as a host with a port; IPv6 addresses without
// brackets; space around ";". Where an element ends does not depend on that: it is found
// from the right by the commas outside quotes, so no text of a client changes an element that
// a proxy has appended to it.
var rfc7239 = notation{lastEntry: cutLastElement, parse: parseElement}

// cutLastElement cuts at the last comma outside quotes. It reads from the
// right, so that a quote which a caller left open cannot swallow the entries of
// proxies. Inside quotes every quote is escaped by a backslash, and an opening
// quote follows an equals sign, so reading backwards is unambiguous.
func cutLastElement(line string) (before, entry string, more bool) {
	for i := len(line) - 1; i >= 0; i-- {
		switch line[i] {
		case ',':
			return line[:i], line[i+1:], true
		case '"':
			for i--; i >= 0 && (line[i] != '"' || i > 0 && line[i-1] == '\\'); i-- {
			}
		}
	}
	return "", line, false
}

// parseElement returns the address in the element's "for" pair. An element that
// breaks the grammar anywhere, or that has no or two such pairs, is not an
// address.
func parseElement(element string) (a address, ok bool) {
	node, found := "", false
	for rest, more := element, true; more; {
		var name, value string
		if name, value, rest, more, ok = cutPair(rest); !ok {
			return address{}, false
		}

		if !strings.EqualFold(name, "for") {
			continue
		}

		// With two pairs it is not clear which of them the proxy has written.
		if found {
			return address{}, false
		}
		node, found = value, true
	}
	return parseNode(node) // without a pair the node is "", which is no address
}

// cutPair cuts the first "name=value" off an element. The grammar allows empty
// pairs, for which the name is "". The value is returned without its quotes and
// escapes, which no address has.
func cutPair(s string) (name, value, rest string, more, ok bool) {
	s = trimSpace(s)
	if s == "" {
		return "", "", "", false, true
	}
	if s[0] == ';' {
		return "", "", s[1:], true, true
	}

	name, s, ok = strings.Cut(s, "=")
	if !ok || !isToken(name) || s == "" {
		return "", "", "", false, false
	}

	if s[0] == '"' {
		value, s, ok = cutQuoted(s[1:])
	} else {
		i := strings.IndexByte(s, ';')
		if i < 0 {
			i = len(s)
		}
		value, s = strings.TrimRight(s[:i], " \t"), s[i:]
		ok = isUnquoted(value)
	}

	// Behind the value only the next pair may follow.
	s = trimSpace(s)
	if !ok || s != "" && s[0] != ';' {
		return "", "", "", false, false
	}

	if s == "" {
		return name, value, "", false, true
	}
	return name, value, s[1:], true, true
}

// cutQuoted cuts after the quote that ends a quoted string.
func cutQuoted(s string) (value, rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[:i], s[i+1:], true
		case c == '\\':
			i++
		case c < ' ' && c != '\t' || c == 0x7f:
			return "", "", false
		}
	}
	return "", "", false
}

// isUnquoted reports whether s can be a value without quotes: printable ASCII without a
// quote, which would make it ambiguous where the value ends.
func isUnquoted(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == '"' {
			return false
		}
	}
	return s != ""
}

// parseNode reads a node: an address with an optional port, which may be obfuscated.
// "unknown" and obfuscated nodes are not addresses.
func parseNode(s string) (address, bool) { return parseHostPort(s, isNodePort) }

// isNodePort reports whether s is a port of a node.
func isNodePort(s string) bool { return isPort(s) || isObfuscated(s) }

// isObfuscated reports whether s is an obfuscated identifier, such as "_edge".
func isObfuscated(s string) bool {
	if len(s) < 2 || s[0] != '_' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// isToken reports whether s is a token of RFC 9110.
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
