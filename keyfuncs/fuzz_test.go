package keyfuncs

import (
	"net/netip"
	"testing"
)

// checkKey fails unless the key is "" or the canonical text of an address.
func checkKey(t *testing.T, key string) {
	t.Helper()
	if key == "" {
		return
	}
	if ip, err := netip.ParseAddr(key); err == nil && ip.Is4() && ip.String() == key {
		return
	}
	p, err := netip.ParsePrefix(key)
	if err != nil || p.Masked() != p || p.String() != key || p.Bits() != 64 || p.Addr().Is4() {
		t.Fatalf("key %q is neither an IPv4 address nor an IPv6 /64", key)
	}
}

func FuzzRemoteAddr(f *testing.F) {
	for _, form := range forms() {
		f.Add(form.text)
	}

	f.Fuzz(func(t *testing.T, remote string) {
		key := keyOf(t, RemoteIP, from(remote, "X-Forwarded-For", "6.6.6.6"))
		checkKey(t, key)

		// What the library reads in its own spelling has a key, and a key read as an address is its
		// own key.
		if ap, err := netip.ParseAddrPort(remote); err == nil && ap.String() == remote && key == "" {
			t.Fatalf("%q is %v but has no key", remote, ap)
		}

		if ip, err := netip.ParseAddr(key); err == nil {
			if again := keyOf(t, RemoteIP, from(ip.String(), "")); again != key {
				t.Fatalf("key %q has key %q", key, again)
			}
		}
	})
}

// fuzzList checks that only the entries to the right of the client's own text decide.
func fuzzList(f *testing.F, header, ownKey string, ownLines ...string) {
	for i, text := range attackers() {
		if i%101 == 0 { // other tests try all of them, and new inputs come after the seeds
			f.Add(text, "203.0.113.9:80")
			f.Add(text, "10.0.0.1:80")
		}
	}

	trusting := MustForwardedIP(Proxies{Trusted: trustedProxies, Header: header})
	oneHop := MustForwardedIP(Proxies{Hops: 1, Header: header})

	f.Fuzz(func(t *testing.T, text, peer string) {
		free := keyOf(t, trusting, from(peer, header, text))
		checkKey(t, free)
		checkKey(t, keyOf(t, oneHop, from(peer, header, text)))

		// A key other than the peer's own may only come through a trusted peer.
		if self := keyOf(t, RemoteIP, from(peer, "")); free != self {
			a, ok := parseAddress(peer)
			if f := (forwarded{trusted: mustTrusted(t)}); !ok || !f.trusts(a) {
				t.Fatalf("untrusted peer %q has key %q by header %q", peer, free, text)
			}
		}

		// The client's text stands before what our proxy appended, in four layouts.
		for _, own := range ownLines {
			for _, lines := range [][]string{{text + ", " + own}, {text + "," + own}, {text + " ,\t" + own + " "},
				{text, own}} {
				if got := keyOf(t, trusting, from("10.0.0.1:80", header, lines...)); got != ownKey {
					t.Fatalf("trusting, %q: key %q, want %q", lines, got, ownKey)
				}
				if got := keyOf(t, oneHop, from("10.0.0.1:80", header, lines...)); got != ownKey {
					t.Fatalf("one hop, %q: key %q, want %q", lines, got, ownKey)
				}
			}
		}
	})
}

func mustTrusted(t *testing.T) []netip.Prefix {
	trusted, errs := parseTrusted(trustedProxies, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return trusted
}

func FuzzXForwardedFor(f *testing.F) {
	fuzzList(f, "X-Forwarded-For", "2001:db8:66::/64", "2001:db8:66::1", "2001:db8:66:0:1:2:3:4:4711",
		"[2001:db8:66::1]:80")
}

func FuzzForwarded(f *testing.F) {
	fuzzList(f, "Forwarded", "2001:db8:66::/64", `proto=https;for="[2001:db8:66::1]:80";host="a,b\""`,
		`by=2001:db8::1;for=2001:db8:66:0:1:2:3:4:4711 ; host=a.example:8443`, `for=[2001:db8:66::1];host=[::1]:80;`)
}
