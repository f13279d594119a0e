package keyfuncs

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/test"
)

// octet is a part of an address, or something like it.
var octet = rapid.OneOf(
	rapid.Just("0"), rapid.StringMatching(`[0-9]{1,4}`), rapid.StringMatching(`25[0-9]`),
	rapid.StringMatching(`[0-9a-f:.% ]{0,3}`),
)

// dotted is an IPv4 address with a port, or something like it.
var dotted = rapid.Custom(func(t *rapid.T) string {
	s := octet.Draw(t, "octet")
	for range rapid.SampledFrom([]int{3, 3, 3, 3, 2, 4}).Draw(t, "dots") {
		s += "." + octet.Draw(t, "octet")
	}
	return s + rapid.OneOf(rapid.Just(""), rapid.StringMatching(`:[0-9]{0,5}`),
		rapid.StringMatching(`[:.%][0-9a-z:]{0,3}`)).Draw(t, "end")
})

// wantIPv4 returns the address that package netip reads from s.
func wantIPv4(s string) (ip netip.Addr, host string) {
	if ap, err := netip.ParseAddrPort(s); err == nil && ap.Addr().Is4() {
		return ap.Addr(), ap.Addr().String()
	}
	if ip, err := netip.ParseAddr(s); err == nil && ip.Is4() {
		return ip, s
	}
	return netip.Addr{}, ""
}

func TestIPv4ParsedAsNetip(t *testing.T) {
	// netip is the oracle: what it reads, the shorter parser has to read alike, and nothing more.
	check := func(t interface{ Errorf(string, ...any) }, s string) {
		ip, host := wantIPv4(s)
		got, ok := parseIPv4(s)
		if ok != ip.IsValid() || ok && (got.ip != ip || got.text != host) {
			t.Errorf("%q: %v %q %t, want %v %q", s, got.ip, got.text, ok, ip, host)
		}
		if got, ok := dottedHost(s); ok && (got != host || s == host) || !ok && got != "" {
			t.Errorf("%q: the host %q %t, want %q", s, got, ok, host)
		}
	}

	// At and beyond each border of an IPv4 address and its port.
	for _, s := range []string{
		"", "0.0.0.0", "255.255.255.255:65535", "192.0.2.1:0", "192.0.2.1:", "192.0.2.1:65536", "192.0.2.1:00080",
		"256.0.2.1", "192.0.2.01", "192.0.2.00", "192.0.2", "192.0.2.1.1", "192.0.2.", ".192.0.2", "192..0.2", "1:2",
		"192.0.2.1:1:1", "::1", "a", "192.0.2.111:", "192.0.2.256:80", "192.0.2.01:80", "192.0.2.11a:80",
	} {
		check(t, s)
	}

	// Random texts would only bury the row that failed.
	if t.Failed() {
		return
	}

	rapid.Check(t, func(t *rapid.T) { check(t, dotted.Draw(t, "address")) })
}

func TestHostOfPeerIsNotParsed(t *testing.T) {
	// Short ports are read the long way, which leads to the same key.
	for s, host := range map[string]string{
		"0.0.0.0:123": "0.0.0.0", "192.0.2.1:65535": "192.0.2.1", "10.20.30.99:40000": "10.20.30.99",
		"255.255.255.255:1": "255.255.255.255",
	} {
		if got, ok := dottedHost(s); got != host || !ok {
			t.Errorf("%q: %q %t", s, got, ok)
		}
	}
}

// tcp is a request with the binary address of its peer.
type tcp struct {
	*test.Request
	peer netip.AddrPort
}

func (r tcp) RemoteAddrPort() netip.AddrPort { return r.peer }

func TestAddressFastPathKey(t *testing.T) {
	// The fast way goes from the server's AddrPort to the key, without text; both ways must lead to
	// one key.
	for _, form := range []string{
		"192.0.2.1:80", "[::ffff:192.0.2.1]:80", "[64:ff9b::192.0.2.1]:80", "[2001:db8:1:2::7]:80",
		"[fe80::7%eth0]:80", "[::1]:80",
	} {
		r := from(form, "")
		want := keyOf(t, RemoteIP, r)
		if got, _ := RemoteIP(tcp{from("", ""), netip.MustParseAddrPort(form)}); got != want || got == "" {
			t.Errorf("%s: key %q, want %q", form, got, want)
		}

		// A server that has no AddrPort falls back to the text.
		if got, _ := RemoteIP(tcp{r, netip.AddrPort{}}); got != want {
			t.Errorf("%s, not known: key %q, want %q", form, got, want)
		}
	}
}

func TestIPv4TextIsThatOfNetip(t *testing.T) {
	// Each octet is written by itself, so every octet in every place is every case.
	for i := range 256 {
		for place := range 4 {
			ip := [4]byte{192, 0, 20, 255}
			ip[place] = byte(i)
			if got, want := formatIPv4(ip), netip.AddrFrom4(ip).String(); got != want {
				t.Errorf("%v: %q, want %q", ip, got, want)
			}
		}
	}
}
