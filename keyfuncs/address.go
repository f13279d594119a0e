package keyfuncs

import (
	"net/netip"
	"strconv"
	"strings"
)

// defaultBits is the IPv6 network that counts as one caller. A /64 is the least
// that a network gives to one subscriber, so its owner has 2^64 addresses.
const defaultBits = 64

// nat64 is the well-known prefix of RFC 6052, under which a translator shows
// IPv4 callers.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// address is a caller's address, with one value for all its spellings.
type address struct {
	ip   netip.Addr // IPv4-mapped addresses unmapped, the zone dropped
	text string     // the dotted form of an IPv4 address that was written so, to save formatting it
}

// parseAddress reads an address with or without a port: "192.0.2.1",
// "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]", "[fe80::1%eth0]:80".
func parseAddress(s string) (address, bool) {
	if a, ok := parseIPv4(s); ok {
		return a, true
	}
	return parseHostPort(s, isPort)
}

// parseHostPort reads an address with or without a port. acceptsPort reports whether a text is a
// port or empty. In RFC 7239 a port need not be a number.
func parseHostPort(s string, acceptsPort func(string) bool) (address, bool) {
	host, port, ok := splitPort(s)
	if !ok || !acceptsPort(port) {
		return address{}, false
	}
	if a, ok := parseHost(host); ok {
		return a, true
	}

	// Some proxies leave the brackets out. What is an address as a whole was taken as one
	// before, so "2001:db8::1:80" has no port, and eight groups with another number have one.
	i := strings.LastIndexByte(s, ':')
	if i+1 >= len(s) || strings.IndexByte(s[:max(i, 0)], ':') < 0 || !acceptsPort(s[i+1:]) {
		return address{}, false
	}
	return parseHost(s[:i])
}

// parseIPv4 reads "192.0.2.1" and "192.0.2.1:80" in one pass. false means only
// that s has neither form.
func parseIPv4(s string) (address, bool) {
	var ip, n uint32 // the octets before the current one, and the current octet
	dots, digits := 0, 0
	for i := range len(s) {
		c := uint32(s[i])
		if d := c - '0'; d <= 9 {
			if n = 10*n + d; n > 255 || digits == 1 && n < 10 { // no leading zero
				return address{}, false
			}
			digits++
			continue
		}

		// A dot ends one of the first three octets, and a colon only the fourth.
		ip = ip<<8 | n
		switch {
		case digits == 0:
			return address{}, false
		case c == '.' && dots < 3:
			dots, digits, n = dots+1, 0, 0
			continue
		case c == ':' && dots == 3:
			return ipv4(ip, s[:i]), i+1 < len(s) && isPort(s[i+1:])
		}
		return address{}, false
	}
	return ipv4(ip<<8|n, s), dots == 3 && digits > 0
}

// ipv4 returns the address of a number, whose dotted form is text.
func ipv4(ip uint32, text string) address {
	return address{netip.AddrFrom4([4]byte{byte(ip >> 24), byte(ip >> 16), byte(ip >> 8), byte(ip)}), text}
}

// octets has every octet as text with a dot behind it, and how long that is.
var octets = func() (list [256]struct {
	text [len("255.")]byte
	size uint8
}) {
	for i := range list {
		list[i].size = uint8(copy(list[i].text[:], strconv.Itoa(i)+"."))
	}
	return list
}()

// formatIPv4 returns the text of an IPv4 address, as netip does. Unlike that it has no branch that
// depends on the address, as a processor foresees none of them.
func formatIPv4(ip [4]byte) string {
	var text [len("255.255.255.255.")]byte
	n := 0
	for _, b := range ip {
		octet := &octets[b]
		*(*[len(octet.text)]byte)(text[n:]) = octet.text // room for the longest is left before each
		n += int(octet.size)
	}
	return string(text[:n-1]) // without the last dot
}

// dottedHost returns the address of an IPv4 peer as servers write it, with a port: it is the key,
// and need not be read as a number. false means only that the text has not that form.
func dottedHost(s string) (host string, ok bool) {
	i := octetEnd(s, 0, '.')
	i = octetEnd(s, i, '.')
	i = octetEnd(s, i, '.')
	i = octetEnd(s, i, ':')
	if i < 0 || i == len(s) || !isPort(s[i:]) {
		return "", false
	}
	return s[:i-1], true
}

// octetEnd returns the index behind the octet of s at i and the byte after it. That must be end,
// and four bytes must be left at i, as an octet, a byte after it and a port have, unless they are
// short. Otherwise, or if i is negative, it returns -1.
func octetEnd(s string, i int, end byte) int {
	if i < 0 || len(s)-i < 4 {
		return -1
	}
	b := s[i : i+4]
	d, e, f := uint(b[0])-'0', uint(b[1])-'0', uint(b[2])-'0'
	switch {
	case d > 9:
	case b[1] == end:
		return i + 2
	case e > 9 || d == 0: // no leading zero
	case b[2] == end:
		return i + 3
	case f <= 9 && b[3] == end && 100*d+10*e+f <= 255:
		return i + 4
	}
	return -1
}

// splitPort cuts "host:port" into its parts and removes the brackets. The port
// is "" if there is none; an empty one is refused.
func splitPort(s string) (host, port string, ok bool) {
	if strings.HasPrefix(s, "[") {
		end := strings.LastIndexByte(s, ']') // a zone may hold brackets
		if end < 0 || strings.IndexByte(s[:end], ':') < 0 {
			return "", "", false
		}

		host, port = s[1:end], s[end+1:]
		if port == "" {
			return host, "", true
		}
		return host, port[1:], port[0] == ':' && port != ":"
	}

	// Two colons without brackets are those of an IPv6 address, which has no port then.
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.IndexByte(s[:i], ':') >= 0 {
		return s, "", true
	}
	return s[:i], s[i+1:], i+1 < len(s)
}

// isPort reports whether s is a port number or empty.
func isPort(s string) bool {
	if len(s) > len("65535") {
		return false
	}
	n := 0
	for i := range len(s) {
		d := int(s[i]) - '0'
		if d < 0 || d > 9 {
			return false
		}
		n = 10*n + d
	}
	return n <= 65535
}

// parseHost reads an address without a port. It cuts the zone off before
// parsing: a zone names an interface of the host that wrote it and not the
// caller, and netip would intern it.
func parseHost(s string) (address, bool) {
	if i := strings.IndexByte(s, '%'); i >= 0 {
		if i+1 == len(s) || strings.IndexByte(s[:i], ':') < 0 {
			return address{}, false
		}
		s = s[:i]
	}

	ip, err := netip.ParseAddr(s)
	if err != nil {
		return address{}, false
	}
	if ip.Is4() {
		// Only one spelling of an IPv4 address is accepted: no leading zeros,
		// no hexadecimal, no missing parts.
		return address{ip, s}, true
	}
	return address{ip: ip.Unmap()}, true
}

// key returns the text under which the address is counted: IPv4 in dotted form,
// and for IPv6 the network of the first bits, as in "2001:db8::/64".
func (a address) key(bits int) string {
	switch {
	case a.text != "":
		return a.text
	case a.ip.Is4():
		return formatIPv4(a.ip.As4())
	case nat64.Contains(a.ip):
		b := a.ip.As16()
		return formatIPv4([4]byte(b[12:]))
	}
	network, _ := a.ip.Prefix(bits) // the bits were checked; the zero Addr gives ""
	var buf [len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")]byte
	return string(network.AppendTo(buf[:0]))
}
