package keyfuncs

import (
	"net/netip"
	"strings"
)

// defaultBits is the IPv6 network that counts as one caller. A /64 is the least
// that a network gives to one subscriber, so its owner has 2^64 addresses.
const defaultBits = 64

// nat64 is the well-known prefix of RFC 6052: an IPv4 caller, seen through a
// translator.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// address is a caller's address, the same value for every spelling of it.
type address struct {
	ip   netip.Addr // IPv4-mapped addresses unmapped, the zone dropped
	text string     // IPv4 in dotted form, if it was written so, to save writing it again
}

// parseAddress reads an address with or without a port: "192.0.2.1",
// "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]", "[fe80::1%eth0]:80".
func parseAddress(s string) (address, bool) {
	host, port, ok := splitPort(s)
	if !ok || !isPort(port) {
		return address{}, false
	}
	return parseHost(host)
}

// splitPort cuts "host:port" into its parts and takes the brackets off. The
// port is "" if there is none; an empty one is refused.
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
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.IndexByte(s[:i], ':') >= 0 {
		return s, "", true
	}
	return s[:i], s[i+1:], i+1 < len(s)
}

// isPort tells whether s is the number of a port, or nothing.
func isPort(s string) bool {
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = n*10 + int(s[i]-'0')
		if n > 65535 || i > 4 {
			return false
		}
	}
	return true
}

// parseHost reads an address without a port. The zone is cut off before
// parsing: it names an interface of whoever wrote it and tells nothing about
// the caller, and netip would intern it.
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
		// Only one text of an IPv4 address is accepted: no leading zeros, no
		// hexadecimal, no missing parts.
		return address{ip, s}, true
	}
	return address{ip: ip.Unmap()}, true
}

// key is the text that the address is counted by: IPv4 in dotted form, and the
// network of the first bits of IPv6, as in "2001:db8::/64".
func (a address) key(bits int) string {
	switch {
	case a.text != "":
		return a.text
	case nat64.Contains(a.ip):
		b := a.ip.As16()
		return netip.AddrFrom4([4]byte(b[12:])).String()
	case a.ip.Is4():
		return a.ip.String()
	}
	network, _ := a.ip.Prefix(bits) // bits were checked; of no address it is no text
	var buf [len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")]byte
	return string(network.AppendTo(buf[:0]))
}
