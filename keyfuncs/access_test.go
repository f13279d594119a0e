package keyfuncs

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
)

// peer returns a request from the address.
func peer(remote string) *test.Request { return &test.Request{Peer: remote} }

// binaryPeer is a request that knows the address of its peer in binary form.
type binaryPeer struct {
	*test.Request
	addr netip.AddrPort
}

func (r binaryPeer) RemoteAddrPort() netip.AddrPort { return r.addr }

func callers(networks ...string) Callers { return Callers{Networks: networks} }

func wantVerdict(t *testing.T, a *Access, r core.Request, key string, want Verdict) {
	t.Helper()
	if got, err := a.Of(r, key); err != nil || got != want {
		t.Errorf("%v with key %q: %s, %v, want %s", r, key, got, err, want)
	}
}

// The longest prefix decides, whatever the order of the entries.
func TestAccessPrefersTheLongestPrefix(t *testing.T) {
	// Lists that lie in one another up to three deep, with mapped and single addresses and both
	// ends of the IPv4 space.
	deny := []string{"10.0.0.0/8", "10.1.2.0/24", "192.0.2.7", "2001:db8::/32", "0.0.0.0/32", "255.255.255.255"}
	allow := []string{"10.1.0.0/16", "10.1.2.3", "10.255.255.255", "2001:db8:1::/48", "::ffff:203.0.113.0/120", "::1"}

	// The first and the last address of each range, and their neighbours outside.
	rows := map[string]Verdict{
		"9.255.255.255": Limited, "10.0.0.0": Denied, "10.0.255.255": Denied, "10.1.0.0": Allowed,
		"10.1.1.255": Allowed,
		"10.1.2.0":   Denied, "10.1.2.2": Denied, "10.1.2.3": Allowed, "10.1.2.4": Denied, "10.1.2.255": Denied,
		"10.1.3.0":     Allowed,
		"10.1.255.255": Allowed, "10.2.0.0": Denied, "10.255.255.254": Denied, "10.255.255.255": Allowed,
		"11.0.0.0":  Limited,
		"192.0.2.6": Limited, "192.0.2.7": Denied, "192.0.2.8": Limited, "203.0.113.0": Allowed,
		"203.0.113.255": Allowed, "203.0.114.0": Limited,
		"0.0.0.0": Denied, "0.0.0.1": Limited, "255.255.255.254": Limited, "255.255.255.255": Denied,
		"2001:db7:ffff:ffff:ffff:ffff:ffff:ffff": Limited, "2001:db8::": Denied, "2001:db8:1::": Allowed,
		"2001:db8:1:ffff:ffff:ffff:ffff:ffff": Allowed,
		"2001:db8:2::":                        Denied, "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff": Denied,
		"2001:db9::": Limited,
		"::":         Limited, "::1": Allowed, "::2": Limited, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": Limited,
	}

	random := rand.New(rand.NewPCG(1, 2))

	// Twenty orders of the same entries: the table that is built from them has to be the same.
	for range 20 {
		random.Shuffle(len(deny), func(i, j int) { deny[i], deny[j] = deny[j], deny[i] })
		random.Shuffle(len(allow), func(i, j int) { allow[i], allow[j] = allow[j], allow[i] })
		a, err := NewAccess(Lists{Allow: callers(allow...), Deny: callers(deny...)})
		if err != nil {
			t.Fatal(err)
		}

		// Servers that know the peer as an AddrPort are asked by another way than by its text.
		for address, want := range rows {
			ip := netip.MustParseAddr(address)
			wantVerdict(t, a, peer(netip.AddrPortFrom(ip, 80).String()), "k", want)
			wantVerdict(t, a, binaryPeer{peer("@"), netip.AddrPortFrom(ip, 80)}, "k", want)
		}
	}
}

func TestAccessReadsEveryFormOfAnAddress(t *testing.T) {
	a := MustAccess(Lists{Deny: callers("10.0.0.0/8", "fe80::1")})

	// Every spelling of a denied address is denied; a zone, a port or a translator's prefix is no
	// way around.
	for address, want := range map[string]Verdict{
		"10.1.2.3": Denied, "10.1.2.3:80": Denied, "[::ffff:10.1.2.3]:80": Denied, "::ffff:a01:203": Denied,
		"[64:ff9b::10.1.2.3]:80": Denied, "[fe80::1%eth0]:80": Denied, "fe80::1%1": Denied, "[fe80::1]": Denied,
		"[fe80::2%eth0]:80": Limited, "[::ffff:11.1.2.3]:80": Limited, "": Limited, "@": Limited, "unix": Limited,
		"10.1.2.300:80": Limited,
	} {
		wantVerdict(t, a, peer(address), "k", want)
	}

	// The same holds for peers that the server knows in binary.
	for address, want := range map[string]Verdict{"::ffff:10.1.2.3%eth0": Denied, "fe80::1%eth0": Denied,
		"64:ff9b::a01:203": Denied, "fe80::2": Limited} {
		wantVerdict(t, a, binaryPeer{peer("@"), netip.AddrPortFrom(netip.MustParseAddr(address), 80)}, "k", want)
	}
}

func TestAccessAppliesKeysFirst(t *testing.T) {
	a := MustAccess(Lists{
		Allow: Callers{Networks: []string{"10.0.0.0/8"}, Keys: []string{"carol", Digest("secret")}},
		Deny:  Callers{Networks: []string{"192.0.2.0/24"}, Keys: []string{"mallory"}},
	})

	// The list holds the digest of the credential, as no list should hold the credential itself.
	key := keyOf(t, APIKey("X-Api-Key"), with("X-Api-Key", " secret "))
	wantVerdict(t, a, peer("192.0.2.1:80"), key, Allowed)

	// A listed key decides before the network, in both directions.
	wantVerdict(t, a, peer("192.0.2.1:80"), "carol", Allowed)
	wantVerdict(t, a, peer("10.0.0.1:80"), "mallory", Denied)

	wantVerdict(t, a, peer("10.0.0.1:80"), "bob", Allowed)
	wantVerdict(t, a, peer("192.0.2.1:80"), "bob", Denied)

	// Keys are compared exactly, and the empty key of unknown callers is on no list.
	wantVerdict(t, a, peer("198.51.100.1:80"), "Carol", Limited)
	wantVerdict(t, a, peer("198.51.100.1:80"), "", Limited)

	// Without a request the key alone decides, and without lists everyone is limited.
	wantVerdict(t, a, nil, "carol", Allowed)
	wantVerdict(t, a, nil, "mallory", Denied)
	wantVerdict(t, a, nil, "bob", Limited)
	wantVerdict(t, nil, peer("192.0.2.1:80"), "mallory", Limited)
}

// Who is on no list is denied then, also a caller without an address.
func TestAccessDeniesOthers(t *testing.T) {
	a := MustAccess(Lists{Allow: Callers{Networks: []string{"10.0.0.0/8", "0.0.0.0/32"}, Keys: []string{"carol"}},
		Deny: callers("10.6.0.0/16"), DenyOthers: true})
	for address, want := range map[string]Verdict{
		"10.0.0.1": Allowed, "10.6.0.1": Denied, "9.0.0.1": Denied, "11.0.0.1": Denied, "::1": Denied, "@": Denied,
		"0.0.0.0": Allowed,
	} {
		wantVerdict(t, a, peer(address), "k", want)
		wantVerdict(t, a, peer(address), "carol", Allowed)
	}
	wantVerdict(t, a, nil, "k", Denied)
	wantVerdict(t, MustAccess(Lists{DenyOthers: true}), peer("10.0.0.1"), "k", Denied)
}

func TestAccessReadsTheAddressFunction(t *testing.T) {
	behind := func(bits int) core.KeyFunc {
		return MustForwardedIP(Proxies{Trusted: []string{"10.0.0.0/8"}, IPv6Prefix: bits})
	}
	network, address := callers("2001:db8::/64", "192.0.2.7"), callers("2001:db8::7", "192.0.2.7")

	// The two mistakes of an Address function. A part of a listed network must not be taken for an
	// address of it: others of the part may not be listed.
	const ofText = "the Address function of the lists returned a text that is no address"
	const ofPart = "the Address function of the lists returned a network, of which only a part is listed: it has to return whole addresses"
	rows := []struct {
		name    string
		lists   Lists
		caller  string
		want    Verdict
		mistake string
	}{
		// The second number is the length to which the function cuts IPv6 addresses; the listed
		// network has 64 bits.
		{"a forwarded address", Lists{Deny: network, Address: behind(64)}, "192.0.2.7", Denied, ""},
		{"another", Lists{Deny: network, Address: behind(64)}, "192.0.2.8", Limited, ""},
		{"a network of the listed size", Lists{Deny: network, Address: behind(64)}, "2001:db8::9", Denied, ""},
		{"a smaller one", Lists{Deny: network, Address: behind(65)}, "2001:db8::9", Denied, ""},
		{"a larger one", Lists{Deny: network, Address: behind(63)}, "2001:db8::9", Limited, ofPart},
		{"a whole address", Lists{Deny: address, Address: behind(128)}, "2001:db8::7", Denied, ""},
		{"its neighbour", Lists{Deny: address, Address: behind(128)}, "2001:db8::8", Limited, ""},
		{"a part", Lists{Deny: address, Address: behind(64)}, "2001:db8::8", Limited, ofPart},

		// Who cannot be told apart from the listed is no exception among the denied.
		{"a part, and others denied", Lists{Allow: address, DenyOthers: true, Address: behind(64)}, "2001:db8::8",
			Denied, ofPart},
		{"no address", Lists{Deny: network, Address: constant("", true)}, "", Limited, ""},
		{"no caller", Lists{Deny: network, Address: constant("192.0.2.7", false)}, "", Limited, ""},

		// A function of the application's own may return any spelling of an address.
		{"a mapped address", Lists{Deny: network, Address: constant("::ffff:192.0.2.7/128", true)}, "", Denied, ""},
		{"a zone", Lists{Deny: address, Address: constant("2001:db8::7%eth0", true)}, "", Denied, ""},
		{"an address with a port", Lists{Deny: network, Address: constant("192.0.2.7:80", true)}, "", Denied, ""},
		{"an address with brackets and a port",
			Lists{Deny: address, Address: constant("[2001:db8::7]:80", true)}, "", Denied, ""},
		{"an address with a port and no brackets", Lists{Deny: address,
			Address: constant("2001:db8:0:0:0:0:0:7:80", true)}, "", Denied, ""},
		{"an address through a translator",
			Lists{Deny: network, Address: constant("64:ff9b::192.0.2.7", true)}, "", Denied, ""},

		// What is no address at all is reported: else the lists would silently match no caller.
		{"a name", Lists{Deny: network, Address: constant("alice", true)}, "", Limited, ofText},
		{"a length that is none", Lists{Deny: network, Address: constant("192.0.2.7/x", true)}, "", Limited, ofText},
		{"too long a prefix", Lists{Deny: network, Address: constant("192.0.2.7/33", true)}, "", Limited, ofText},
	}

	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := MustAccess(row.lists).Of(from("10.0.0.1:80", "X-Forwarded-For", row.caller), "k")
			if got != row.want || (err == nil) != (row.mistake == "") || err != nil && err.Error() != row.mistake {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}

func TestAccessNamesEveryMistake(t *testing.T) {
	rows := []struct {
		name  string
		lists Lists
		want  string
	}{
		// The error has a line for each mistake, those of keys first.
		{"several", Lists{
			Allow: Callers{[]string{"10.0.0.0/33", "10.0.0.1/8", "fe80::1%eth0", "10.0.0.1:80", ""},
				[]string{"carol", "carol", ""}},
			Deny: Callers{[]string{"example.com"}, []string{"carol", ""}},
		}, `the allowed key "carol" is listed twice
one allowed key is empty, which is the key of all unknown callers
the key "carol" is on both lists
one denied key is empty, which is the key of all unknown callers
the allowed network "10.0.0.0/33" is not a CIDR prefix
the allowed network "10.0.0.1/8" has bits set beyond its length; 10.0.0.0/8 or 10.0.0.1 is meant
the allowed network "fe80::1%eth0" is not an address or a CIDR prefix
the allowed network "10.0.0.1:80" is not an address or a CIDR prefix, which have no port and no brackets; write 10.0.0.1
the allowed network "" is not an address or a CIDR prefix
the denied network "example.com" is not an address or a CIDR prefix`},
		{"twice", Lists{Deny: callers("10.0.0.0/8", "192.0.2.1", "10.0.0.0/8", "::ffff:192.0.2.1", "192.0.2.1/32")},
			`the denied network "10.0.0.0/8" is listed twice
the denied network "::ffff:192.0.2.1" is listed twice, also as "192.0.2.1"
the denied network "192.0.2.1/32" is listed twice, also as "192.0.2.1"`},
		{"on both lists", Lists{Allow: callers("2001:db8::/32"), Deny: callers("2001:db8::/32")},
			`the network "2001:db8::/32" is on both lists`},

		// An entry that another of its list covers is dead, and likely a mistake.
		{"within another", Lists{Deny: callers("10.1.2.3", "10.0.0.0/8", "10.2.0.0/16"),
			Allow: callers("10.3.0.0/16", "10.3.3.3")},
			`the denied network "10.1.2.3" lies within "10.0.0.0/8" of the same list
the denied network "10.2.0.0/16" lies within "10.0.0.0/8" of the same list
the allowed network "10.3.3.3" lies within "10.3.0.0/16" of the same list`},

		// Between the lists it is not: that is what exceptions are made of.
		{"an exception within an exception", Lists{Deny: callers("10.0.0.0/8", "10.1.1.0/24"),
			Allow: callers("10.1.0.0/16", "10.1.1.1")}, ""},

		// A list that denies everyone is written by mistake, as by a lost digit of a prefix length.
		{"everything", Lists{Deny: callers("0.0.0.0/0", "::/0")},
			`the networks leave no IPv4 address to be limited: to deny all that are not allowed, say so for all others
the networks leave no IPv6 address to be limited: to deny all that are not allowed, say so for all others`},
		{"everything in parts", Lists{Deny: callers("0.0.0.0/1", "128.0.0.0/2"),
			Allow: callers("192.0.0.0/2", "10.0.0.0/8")},
			`the networks leave no IPv4 address to be limited: to deny all that are not allowed, say so for all others`},
		{"nearly everything", Lists{Deny: callers("0.0.0.0/1", "128.0.0.0/2")}, ""},
		{"everything mapped", Lists{Deny: callers("::ffff:0:0/96")},
			`the networks leave no IPv4 address to be limited: to deny all that are not allowed, say so for all others`},
		{"everything, on purpose", Lists{Allow: callers("10.0.0.0/8"), DenyOthers: true}, ""},
		{"everything allowed", Lists{Allow: callers("::/1", "8000::/1")},
			`the allowed networks cover every IPv6 address`},
		{"everything allowed, others denied", Lists{Allow: callers("0.0.0.0/0"), DenyOthers: true},
			`the allowed networks cover every IPv4 address`},
	}

	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			_, err := NewAccess(row.lists)
			want := "keyfuncs: Lists: " + row.want
			if row.want == "" && err != nil || row.want != "" && (err == nil || err.Error() != want) {
				t.Errorf("%v\nwant %s", err, want)
			}
		})
	}
}

// An error about a long list stays short.
func TestAccessBoundsItsMistakes(t *testing.T) {
	bad := slices.Repeat([]string{"x"}, 1000)
	_, err := NewAccess(Lists{Deny: Callers{Networks: bad, Keys: bad}})
	if err == nil || strings.Count(err.Error(), "\n") != 41 || !strings.Contains(err.Error(), "\nand 979 more\n") ||
		!strings.HasSuffix(err.Error(), "\nand 980 more") {
		t.Errorf("%v", err)
	}
}

// naive is what an Access says, found by a look at every entry.
func naive(list []network, ip netip.Addr) Verdict {
	n := numberOf(ip)
	longest, verdict := -1, Limited
	for i := range list {
		if e := &list[i]; e.bits > longest && e.first.compare(n) <= 0 && n.compare(e.last) <= 0 {
			longest, verdict = e.bits, e.verdict
		}
	}
	return verdict
}

// The table agrees with a look at every entry, in the middle of ranges and at their ends.
func TestAccessAgreesWithALoop(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	rounds, asked := 0, 0
	for rounds < 150 {
		a, list := randomNetworks(random, 1+random.IntN(40))
		if len(list) == 0 {
			continue
		}
		rounds++

		for range 200 {
			ip := randomAddress(random, list)
			asked++

			// The naive loop over the entries is the oracle.
			got, err := a.Of(binaryPeer{peer("@"), netip.AddrPortFrom(ip, 1)}, "k")
			if want := naive(list, ip); err != nil || got != want {
				t.Fatalf("%s of %v: %s, %v, want %s", ip, list, got, err, want)
			}
		}
	}

	// The seed is fixed, so that the number of addresses is known: a run that asked fewer has
	// tested less.
	if asked != 30_000 {
		t.Errorf("%d addresses", asked)
	}
}

// randomNetworks returns lists of IPv4 or IPv6 networks that lie in one another, with
// those entries that NewAccess does not refuse.
func randomNetworks(random *rand.Rand, n int) (*Access, []network) {
	var l Lists
	var list []network

	six := random.IntN(2) == 0
	for range n {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], random.Uint64())
		binary.BigEndian.PutUint64(b[8:], random.Uint64())
		ip := netip.AddrFrom16(b)
		if !six {
			ip = netip.AddrFrom4([4]byte(b[:4]))
		}
		if len(list) > 0 && random.IntN(3) > 0 { // an address in, beside or around another
			ip = randomAddress(random, list)
		}

		p, err := ip.Prefix(random.IntN(ip.BitLen() + 1))
		if err != nil {
			panic(err)
		}

		verdict := Allowed
		next := l
		if random.IntN(2) == 0 {
			verdict = Denied
			next.Deny.Networks = append(slices.Clip(l.Deny.Networks), p.String())
		} else {
			next.Allow.Networks = append(slices.Clip(l.Allow.Networks), p.String())
		}

		// Entries that NewAccess refuses, as duplicates and parts of others, are left out of both
		// forms.
		if _, err := NewAccess(next); err == nil {
			l, list = next, append(list, newNetwork(p, verdict, p.String()))
		}
	}

	if len(list) == 0 {
		return nil, nil
	}
	return MustAccess(l), list
}

// randomAddress returns the first or last address of a listed network, or a neighbour.
func randomAddress(random *rand.Rand, list []network) netip.Addr {
	e := list[random.IntN(len(list))]
	ip := netip.MustParsePrefix(e.text).Addr()
	if random.IntN(2) == 0 {
		ip = addressOf(e.last, ip.Is4())
	}
	switch random.IntN(3) {
	case 0:
		ip = cmp.Or(ip.Next(), ip)
	case 1:
		ip = cmp.Or(ip.Prev(), ip)
	}
	return ip
}

func addressOf(n number, four bool) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], n.high)
	binary.BigEndian.PutUint64(b[8:], n.low)
	if four {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b)
}

// manyNetworks returns n networks that are apart, half of them of IPv6.
func manyNetworks(n int) Lists {
	var l Lists
	for i := range n / 2 {
		l.Deny.Networks = append(l.Deny.Networks,
			fmt.Sprintf("%d.%d.%d.0/25", 1+i>>16, i>>8&255, i&255), fmt.Sprintf("2001:%x:%x::/48", i>>8, i&255))
	}
	return l
}

// The memory of a network has a bound, which the documentation of Access names.
func TestAccessMemory(t *testing.T) {
	const n = 100_000
	a := MustAccess(manyNetworks(n))
	bytes := 0
	for _, table := range []*networks{&a.v4, &a.v6} {
		bytes += 16*cap(table.starts) + cap(table.verdicts)
	}
	if bytes != 34*n {
		t.Errorf("%d bytes, want %d", bytes, 34*n)
	}
}

func BenchmarkAccess(b *testing.B) {
	// The table's time should hardly grow with the number of networks, as the loop's does.
	for _, n := range []int{10, 1000, 100_000} {
		l := manyNetworks(n)
		a := MustAccess(l)
		var list []network
		for _, text := range l.Deny.Networks {
			list = append(list, newNetwork(netip.MustParsePrefix(text), Denied, text))
		}

		random := rand.New(rand.NewPCG(5, 6))
		requests := make([]core.Request, 1024)
		addresses := make([]netip.Addr, len(requests))
		for i := range requests {
			addresses[i] = netip.MustParsePrefix(list[random.IntN(n)].text).Addr()
			requests[i] = binaryPeer{peer("@"), netip.AddrPortFrom(addresses[i], 1)}
		}

		b.Run(fmt.Sprint("table/", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if v, _ := a.Of(requests[i%len(requests)], "k"); v != Denied {
					b.Fatal(v)
				}
			}
		})

		b.Run(fmt.Sprint("loop/", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if v := naive(list, addresses[i%len(addresses)]); v != Denied {
					b.Fatal(v)
				}
			}
		})
	}

	b.Run("build/100000", func(b *testing.B) {
		l := manyNetworks(100_000)
		for b.Loop() {
			MustAccess(l)
		}
	})
}
