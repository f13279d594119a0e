package keyfuncs

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRemoteIPForms(t *testing.T) {
	for _, f := range forms() {
		if got := keyOf(t, RemoteIP, from(f.text, "X-Forwarded-For", "6.6.6.6")); got != f.key {
			t.Errorf("peer %.200q: key %q, want %q", f.text, got, f.key)
		}
	}
}

func TestRemoteIPv6Prefix(t *testing.T) {
	const peer = "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:80"

	// Every bit of the peer is set, so that a bit too many or too few shows.
	rows := map[int]string{
		32:  "2001:db8::/32",
		33:  "2001:db8:8000::/33",
		48:  "2001:db8:ffff::/48",
		56:  "2001:db8:ffff:ff00::/56",
		64:  "2001:db8:ffff:ffff::/64",
		127: "2001:db8:ffff:ffff:ffff:ffff:ffff:fffe/127",
		128: "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/128",
	}

	for bits, want := range rows {
		k := MustRemoteIPPrefix(bits)
		if got := keyOf(t, k, from(peer, "")); got != want {
			t.Errorf("%d bits: key %q, want %q", bits, got, want)
		}

		// The length is for IPv6 alone, and NAT64 hides an IPv4 address.
		if got := keyOf(t, k, from("[64:ff9b::192.0.2.1]:80", "")); got != "192.0.2.1" {
			t.Errorf("%d bits: IPv4 through NAT64 has key %q", bits, got)
		}

		// Behind a proxy the same length holds.
		k = MustForwardedIP(Proxies{Hops: 1, IPv6Prefix: bits})
		if got := keyOf(t, k, from("10.0.0.1:80", "X-Forwarded-For", peer)); got != want {
			t.Errorf("forwarded, %d bits: key %q, want %q", bits, got, want)
		}
	}
}

func TestRemoteIPv6PrefixRange(t *testing.T) {
	for _, bits := range []int{-1, 0, 1, 31, 129, math.MaxInt, math.MinInt} {
		want := fmt.Sprintf("keyfuncs: RemoteIPPrefix: an IPv6 prefix of %d bits is not within 32 to 128", bits)
		k, err := RemoteIPPrefix(bits)
		if err == nil || err.Error() != want || k != nil {
			t.Errorf("%d bits: function %v, error %v, want %s", bits, k != nil, err, want)
		}
	}

	// The function for programs' own constants panics instead.
	defer func() {
		if recover() == nil {
			t.Error("MustRemoteIPPrefix(0) did not panic")
		}
	}()
	MustRemoteIPPrefix(0)
}

// spell writes an address in one of its many spellings.
func spell(t *rapid.T, ip [16]byte) string {
	groups := make([]string, 8)
	for i := range groups {
		n := binary.BigEndian.Uint16(ip[2*i:])
		groups[i] = fmt.Sprintf([]string{"%x", "%X", "%04x", "%04X"}[rapid.IntRange(0, 3).Draw(t, "group")], n)
	}

	// Zeros may be left out at one place, the last four bytes may be dotted, and zone, brackets and
	// port come around it.
	if rapid.Bool().Draw(t, "dotted tail") {
		groups = append(groups[:6], fmt.Sprintf("%d.%d.%d.%d", ip[12], ip[13], ip[14], ip[15]))
	}

	text := strings.Join(groups, ":")
	at := rapid.IntRange(0, len(groups)-1).Draw(t, "compressed from")
	to := at
	for to < len(groups) && strings.Trim(groups[to], "0") == "" {
		to++
	}
	if to > at {
		text = strings.Join(groups[:at], ":") + "::" + strings.Join(groups[to:], ":")
	}

	text += rapid.SampledFrom([]string{"", "%eth0", "%1"}).Draw(t, "zone")
	return fmt.Sprintf(rapid.SampledFrom([]string{"%s", "[%s]", "[%s]:80", "[%s]:65535"}).Draw(t, "port"), text)
}

// anyIPv6 generates addresses that often have zeros and shared prefixes.
func anyIPv6(t *rapid.T) (ip [16]byte) {
	copy(ip[:], rapid.SampledFrom([]string{"", "\x20\x01\x0d\xb8", "\x00\x64\xff\x9b",
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff"}).Draw(t, "prefix"))
	for i := range ip {
		if ip[i] == 0 && rapid.Bool().Draw(t, "set") {
			ip[i] = rapid.Byte().Draw(t, "byte")
		}
	}
	return ip
}

func TestRemoteIPNotations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ip := anyIPv6(t)
		one, other := spell(t, ip), spell(t, ip)
		a, _ := RemoteIP(from(one, ""))
		b, _ := RemoteIP(from(other, ""))
		if a != b || a == "" {
			t.Fatalf("%q has key %q, %q has key %q", one, a, other, b)
		}
	})
}

func TestRemoteIPv4InIPv6(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "ip"))
		want := fmt.Sprintf("%d.%d.%d.%d", b[0], b[1], b[2], b[3])
		mapped := [16]byte{10: 0xff, 11: 0xff, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
		nat := [16]byte{1: 0x64, 2: 0xff, 3: 0x9b, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
		for _, text := range []string{want, want + ":80", spell(t, mapped), spell(t, nat)} {
			if got, _ := RemoteIP(from(text, "")); got != want {
				t.Fatalf("%q has key %q, want %q", text, got, want)
			}
		}
	})
}

func TestRemoteIPv6Networks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyIPv6(t), anyIPv6(t)

		// Half of the pairs differ in one bit of the network, which is the least that must be seen.
		if rapid.Bool().Draw(t, "near") {
			copy(b[:8], a[:8])
			b[rapid.IntRange(0, 7).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}

		if embedsIPv4(a) || embedsIPv4(b) {
			t.Skip("counted as IPv4")
		}

		// Any two spellings: one key if and only if the first 64 bits are the same.
		keyA, _ := RemoteIP(from(spell(t, a), ""))
		keyB, _ := RemoteIP(from(spell(t, b), ""))
		if same := [8]byte(a[:8]) == [8]byte(b[:8]); same != (keyA == keyB) {
			t.Fatalf("%v has key %q, %v has key %q", netip.AddrFrom16(a), keyA, netip.AddrFrom16(b), keyB)
		}
	})
}

func embedsIPv4(ip [16]byte) bool {
	return string(ip[:12]) == "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff" ||
		string(ip[:12]) == "\x00\x64\xff\x9b\x00\x00\x00\x00\x00\x00\x00\x00"
}
