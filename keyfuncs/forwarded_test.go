package keyfuncs

import (
	"strings"
	"testing"
)

func TestForwardedIPTrusted(t *testing.T) {
	k := MustForwardedIP(Proxies{Trusted: []string{"10.0.0.0/8", "2001:db8:f::/48"}})
	rows := []struct {
		name, peer string
		lines      []string
		want       string
	}{
		// From the right: whatever is before the first entry that no trusted proxy vouches for is
		// the client's own.
		{"no header", "10.0.0.1:80", nil, "10.0.0.1"},
		{"an empty line", "10.0.0.1:80", []string{""}, "10.0.0.1"},
		{"one entry", "10.0.0.1:80", []string{"203.0.113.7"}, "203.0.113.7"},
		{"an entry with a port", "10.0.0.1:80", []string{"203.0.113.7:5678"}, "203.0.113.7"},
		{"the leftmost is forged", "10.0.0.1:80", []string{"6.6.6.6, 203.0.113.7"}, "203.0.113.7"},
		{"the first line is forged", "10.0.0.1:80", []string{"6.6.6.6", "203.0.113.7"}, "203.0.113.7"},
		{"two proxies", "10.0.0.1:80", []string{"6.6.6.6, 203.0.113.7, 10.0.0.2"}, "203.0.113.7"},
		{"two proxies on two lines", "10.0.0.1:80", []string{"6.6.6.6, 203.0.113.7", "10.0.0.2"}, "203.0.113.7"},
		{"an untrusted proxy between", "10.0.0.1:80", []string{"203.0.113.7, 198.51.100.9, 10.0.0.2"}, "198.51.100.9"},
		{"a caller inside", "10.0.0.1:80", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"IPv6 proxies", "[2001:db8:f::1]:80", []string{"2001:db8:1::7, 2001:db8:f::2"}, "2001:db8:1::/64"},
		{"a trusted address that is mapped", "[::ffff:10.0.0.1]:80", []string{"203.0.113.7, ::ffff:a00:2"},
			"203.0.113.7"},

		// Who is not a proxy of ours is not believed.
		{"a stranger", "203.0.113.9:80", []string{"203.0.113.7"}, "203.0.113.9"},
		{"no peer", "@", []string{"203.0.113.7"}, ""},

		// An entry that cannot be read ends the walk: the last proxy that is known is the caller.
		{"junk at the right", "10.0.0.1:80", []string{"203.0.113.7, junk"}, "10.0.0.1"},
		{"junk behind a proxy", "10.0.0.1:80", []string{"203.0.113.7, junk, 10.0.0.2"}, "10.0.0.2"},
		{"an empty entry behind a proxy", "10.0.0.1:80", []string{"203.0.113.7, , 10.0.0.2"}, "10.0.0.2"},
		{"an empty line behind a proxy", "10.0.0.1:80", []string{"203.0.113.7", "", "10.0.0.2"}, "10.0.0.2"},
		{"unknown", "10.0.0.1:80", []string{"unknown"}, "10.0.0.1"},
	}

	for _, row := range rows {
		if got := keyOf(t, k, from(row.peer, "X-Forwarded-For", row.lines...)); got != row.want {
			t.Errorf("%s: key %q, want %q", row.name, got, row.want)
		}
	}
}

func TestForwardedIPHops(t *testing.T) {
	rows := []struct {
		hops  int
		lines []string
		want  string
	}{
		// The entry that many places from the right is the caller, whatever comes before.
		{1, []string{"203.0.113.7"}, "203.0.113.7"},
		{1, []string{"6.6.6.6, 203.0.113.7"}, "203.0.113.7"},
		{1, []string{"6.6.6.6", "203.0.113.7"}, "203.0.113.7"},
		{2, []string{"6.6.6.6, 203.0.113.7, 198.51.100.2"}, "203.0.113.7"},
		{2, []string{"6.6.6.6, 203.0.113.7", "198.51.100.2"}, "203.0.113.7"},
		{3, []string{"6.6.6.6", "203.0.113.7", "198.51.100.3", "198.51.100.2"}, "203.0.113.7"},

		// Fewer entries than proxies, or one that is junk: the request took another way, so the
		// peer is the caller.
		{2, []string{"203.0.113.7"}, "192.0.2.1"},
		{2, []string{"203.0.113.7, junk"}, "192.0.2.1"},
		{2, []string{"junk, 203.0.113.7"}, "192.0.2.1"},
		{1, nil, "192.0.2.1"},
	}

	for _, row := range rows {
		k := MustForwardedIP(Proxies{Hops: row.hops})
		if got := keyOf(t, k, with("X-Forwarded-For", row.lines...)); got != row.want {
			t.Errorf("%d hops, %q: key %q, want %q", row.hops, row.lines, got, row.want)
		}
	}

	// Over a Unix socket the peer has no address, and with counted hops it needs none.
	k := MustForwardedIP(Proxies{Hops: 1})
	if got := keyOf(t, k, from("@", "X-Forwarded-For", "203.0.113.7")); got != "203.0.113.7" {
		t.Errorf("over a Unix socket: key %q", got)
	}
	if got := keyOf(t, k, from("@", "X-Forwarded-For", "junk")); got != "" {
		t.Errorf("junk over a Unix socket: key %q", got)
	}
}

func TestForwardedStrict(t *testing.T) {
	k := MustForwardedIP(Proxies{Trusted: []string{"10.0.0.0/8"}, Header: "Forwarded"})
	const peer = "10.0.0.1"
	rows := []struct{ line, want string }{
		// As the RFC writes it, attempts at a forged element within a quoted text included.
		{`for=203.0.113.7`, "203.0.113.7"},
		{`FOR=203.0.113.7`, "203.0.113.7"},
		{`for="203.0.113.7"`, "203.0.113.7"},
		{`for="203.0.113.7:80"`, "203.0.113.7"},
		{`for="203.0.113.7:_x"`, "203.0.113.7"},
		{`for="[2001:db8:1::7]"`, "2001:db8:1::/64"},
		{`for="[2001:db8:1::7]:4711"`, "2001:db8:1::/64"},
		{`for="[::ffff:203.0.113.7]"`, "203.0.113.7"},
		{`by=10.0.0.1;for=203.0.113.7;proto=http`, "203.0.113.7"},
		{`by="a,b;c";for=203.0.113.7`, "203.0.113.7"},
		{`by="\",for=6.6.6.6,\"";for=203.0.113.7`, "203.0.113.7"},
		{`for=203.0.113.7;ext="\\"`, "203.0.113.7"},
		{`form=6.6.6.6;for=203.0.113.7;fork=6.6.6.6`, "203.0.113.7"},
		{`;;for=203.0.113.7;;`, "203.0.113.7"},
		{`for=6.6.6.6, for=203.0.113.7, for=10.0.0.2`, "203.0.113.7"},
		{`for="6.6.6.6, for=203.0.113.7`, "203.0.113.7"},
		{`x="\", for="203.0.113.7"`, "203.0.113.7"},

		// As gateways write it.
		{`for=203.0.113.7:80`, "203.0.113.7"},
		{`for=203.0.113.7:_x`, "203.0.113.7"},
		{`for=[2001:db8:1::7]`, "2001:db8:1::/64"},
		{`for=[2001:db8:1::7]:80`, "2001:db8:1::/64"},
		{`for=[2001:db8:1::7]:_x`, "2001:db8:1::/64"},
		{`for=2001:db8:1::7`, "2001:db8:1::/64"},
		{`for=2001:db8:1:0:1:2:3:4:4711`, "2001:db8:1::/64"},
		{`for=::ffff:203.0.113.7`, "203.0.113.7"},
		{`for="2001:db8:1::7"`, "2001:db8:1::/64"},
		{`for="2001:db8:1:0:1:2:3:4:4711"`, "2001:db8:1::/64"},
		{`by=203.0.113.9;for=2001:db8:1::7;host=api.example.com;proto=https`, "2001:db8:1::/64"},
		{`by=2001:db8::9;for=203.0.113.7`, "203.0.113.7"},
		{`for=203.0.113.7;host=api.example.com:8443`, "203.0.113.7"},
		{`for=203.0.113.7;host=[2001:db8::1]:8443`, "203.0.113.7"},
		{`host=api.example.com:8443;for=203.0.113.7`, "203.0.113.7"},
		{`for=203.0.113.7; proto=http`, "203.0.113.7"},
		{`for=203.0.113.7 ;proto=http`, "203.0.113.7"},
		{"for=203.0.113.7\t; \tproto=http;", "203.0.113.7"},
		{`for="203.0.113.7" ; proto=http`, "203.0.113.7"},
		{`; for=203.0.113.7 ; `, "203.0.113.7"},
		{`for=6.6.6.6 , for=203.0.113.7:80 ,	for=10.0.0.2:80`, "203.0.113.7"},
		{`for=203.0.113.7;path=/a?b=c&d@e`, "203.0.113.7"},

		// What is not an element, or not for an address, names no client: the peer is the caller.
		{``, peer},
		{`203.0.113.7`, peer},
		{`form=203.0.113.7`, peer},
		{`for`, peer},
		{`for=`, peer},
		{`for=""`, peer},
		{`=203.0.113.7`, peer},
		{`for=unknown`, peer},
		{`for=_hidden`, peer},
		{`for="_hidden:80"`, peer},
		{`for="unknown:80"`, peer},
		{`proto=https;by=203.0.113.7`, peer},
		{`for="[203.0.113.7]"`, peer},
		{`for=[203.0.113.7]`, peer},
		{`for=[2001:db8::7`, peer},
		{`for=2001:db8::7]`, peer},
		{`for=203.0.113.7:`, peer},
		{`for=203.0.113.7:_`, peer},
		{`for=203.0.113.7:65536`, peer},
		{`for=unknown:80`, peer},
		{`for=_hidden:80`, peer},
		{`for=203.0.113.7 203.0.113.8`, peer},
		{`for=203.0.113.7;host=a"b`, peer},
		{`for=203.0.113.7;host="a"b"`, peer},
		{`for=203.0.113.7;host=a;for=6.6.6.6`, peer},
		{`for=203.0.113.7; host=a:80 ;For=6.6.6.6:80`, peer},
		{`for=203.0.113.7 proto=http`, peer},
		{`for="[2001:db8::7"`, peer},
		{`for="[2001:db8::7]80"`, peer},
		{`for="203.0.113.7:"`, peer},
		{`for="203.0.113.7:_"`, peer},
		{`for="\203.0.113.7"`, peer},

		// Spaces and quotes in the wrong places.
		{`for= 203.0.113.7`, peer},
		{`for =203.0.113.7`, peer},
		{`for=" 203.0.113.7"`, peer},
		{`for="203.0.113.7`, peer},
		{`for=203.0.113.7"`, peer},
		{`for="203.0.113.7"x`, peer},
		{`for="203.0.113.7"proto=http`, peer},
		{`for='203.0.113.7'`, peer},

		// Two values of for: another parser may take the other one.
		{`for=203.0.113.7;for=198.51.100.1`, peer},
		{`for=203.0.113.7;for=203.0.113.7`, peer},
		{`for="";for=203.0.113.7`, peer},
		{`for=203.0.113.7;For=""`, peer},
		{`for=203.0.113.7;pro to=http`, peer},
		{`for=203.0.113.7;proto`, peer},
		{`for=203.0.113.7;proto=`, peer},
		{`for=203.0.113.7;proto=a b`, peer},
		{`for=203.0.113.7;x="` + "\x01" + `"`, peer},
		{`for=203.0.113.7;x="` + "\x7f" + `"`, peer},
		{`for=203.0.113.7;x="\`, peer},
		{`for=203.0.113.7,`, peer},

		// Only the broken element stops the walk; the proxies to its right are known.
		{`for=203.0.113.7, for=unknown, for=10.0.0.2`, "10.0.0.2"},
		{`for=203.0.113.7, proto=http, for=10.0.0.2`, "10.0.0.2"},
		{`for=203.0.113.7:80, for=_hidden:80, for=10.0.0.2:80`, "10.0.0.2"},
		{`for=203.0.113.7;host=a:80, host=b:80, for=10.0.0.2; host=c:80`, "10.0.0.2"},
	}

	for _, row := range rows {
		if got := keyOf(t, k, from("10.0.0.1:80", "Forwarded", row.line)); got != row.want {
			t.Errorf("%s: key %q, want %q", row.line, got, row.want)
		}
	}
}

func TestProxiesErrors(t *testing.T) {
	rows := []struct {
		name string
		p    Proxies
		want []string
	}{
		// Neither or both ways to decide.
		{"nothing", Proxies{}, []string{"Trusted: no proxy is listed; without proxies use RemoteIP"}},
		{"an empty list", Proxies{Trusted: []string{}},
			[]string{"Trusted: no proxy is listed; without proxies use RemoteIP"}},
		{"both", Proxies{Trusted: []string{"10.0.0.1"}, Hops: 1},
			[]string{"Hops: not together with Trusted; one of them must decide"}},
		{"negative hops", Proxies{Hops: -1}, []string{"Hops: -1 is not within 1 to 32"}},
		{"far too many hops", Proxies{Hops: 33}, []string{"Hops: 33 is not within 1 to 32"}},
		{"hops in a single header", Proxies{Hops: 1, Header: "x-real-ip"},
			[]string{"Header: X-Real-Ip is not a list, so Hops means nothing to it"}},

		// Who trusts everyone lets every client choose its key, also in the mapped spelling.
		{"the whole Internet", Proxies{Trusted: []string{"0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96"}}, []string{
			`Trusted[0]: "0.0.0.0/0" trusts every address`,
			`Trusted[1]: "::/0" trusts every address`,
			`Trusted[2]: "::ffff:0.0.0.0/96" trusts every address`,
		}},

		// All mistakes are named at once, with the index of each; 300 bytes of junk are cut short.
		{"all at once", Proxies{
			Trusted: []string{"10.0.0.0/8", "10.0.0.0/33", "", " 10.0.0.1", "fe80::1%eth0", "10.1.2.3/8",
				"2001:db8::1/32", "proxy", "10.0.0.1", strings.Repeat("x", 300)},
			Hops:       2,
			Header:     "X Real IP",
			IPv6Prefix: 31,
		}, []string{
			"IPv6Prefix: an IPv6 prefix of 31 bits is not within 32 to 128",
			`Trusted[1]: "10.0.0.0/33" is not a CIDR prefix`,
			`Trusted[2]: "" is not an address or a CIDR prefix`,
			`Trusted[3]: " 10.0.0.1" is not an address or a CIDR prefix`,
			`Trusted[4]: "fe80::1%eth0" is not an address or a CIDR prefix`,
			`Trusted[5]: "10.1.2.3/8" has bits set beyond its length; 10.0.0.0/8 or 10.1.2.3 is meant`,
			`Trusted[6]: "2001:db8::1/32" has bits set beyond its length; 2001:db8::/32 or 2001:db8::1 is meant`,
			`Trusted[7]: "proxy" is not an address or a CIDR prefix`,
			`Trusted[9]: "` + strings.Repeat("x", 100) + `…" is not an address or a CIDR prefix`,
			`Header: "X Real IP" is not the name of a header`,
			"Hops: not together with Trusted; one of them must decide",
		}},
	}

	for _, row := range rows {
		k, err := ForwardedIP(row.p)
		if want := "keyfuncs: Proxies: " + strings.Join(row.want, "\n"); err == nil || k != nil || err.Error() != want {
			t.Errorf("%s: error\n%v\nwant\n%s", row.name, err, want)
		}
	}
}

func TestTrustedNamesTheAddressThatIsMeant(t *testing.T) {
	for text, meant := range map[string]string{
		"10.0.0.1:80": "10.0.0.1", "[2001:db8::1]": "2001:db8::1", "[2001:db8::1]:80": "2001:db8::1",
		"2001:db8:0:0:1:2:3:4:4711": "2001:db8::1:2:3:4",
	} {
		want := `keyfuncs: Proxies: Trusted[0]: "` + text + `" is not an address or a CIDR prefix, which have no port and no brackets; write ` + meant
		if _, err := ForwardedIP(Proxies{Trusted: []string{text}}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestMustForwardedIP(t *testing.T) {
	defer func() {
		err, _ := recover().(error)
		if err == nil || !strings.Contains(err.Error(), `Trusted[0]: "x"`) {
			t.Errorf("it panicked with %v", err)
		}
	}()
	MustForwardedIP(Proxies{Trusted: []string{"x"}})
}

func TestPrivateNetworks(t *testing.T) {
	// A caller may write to the slice that it gets without changing the list for others.
	Private()[0] = "0.0.0.0/0"
	k := MustForwardedIP(Proxies{Trusted: append(Private(), "203.0.113.0/24")})

	// The first and last addresses of the networks and one in each, and the list's own addition.
	for _, peer := range []string{"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "127.0.0.1",
		"169.254.169.126", "::1", "fd12::1", "fe80::1%eth0", "203.0.113.1"} {
		if got := keyOf(t, k, from(peer, "X-Forwarded-For", "8.8.8.8")); got != "8.8.8.8" {
			t.Errorf("%s is not trusted: key %q", peer, got)
		}
	}

	// Their neighbours. 100.64.0.1 is shared by the customers of a provider and is not private.
	for _, peer := range []string{"9.255.255.255", "11.0.0.0", "172.15.0.1", "172.32.0.1", "192.169.0.1",
		"100.64.0.1", "128.0.0.1", "8.8.4.4", "::2", "2001:db8::1"} {
		if got := keyOf(t, k, from(peer, "X-Forwarded-For", "8.8.8.8")); got == "8.8.8.8" {
			t.Errorf("%s is trusted", peer)
		}
	}
}

func TestFromProxy(t *testing.T) {
	trusted, err := FromProxy(Proxies{Trusted: []string{"10.0.0.0/8", "2001:db8::1"}})
	if err != nil {
		t.Fatal(err)
	}

	// The peer alone counts, whatever the headers say.
	for peer, want := range map[string]bool{
		"10.1.2.3:80": true, "[::ffff:10.1.2.3]:80": true, "[2001:db8::1]:80": true, "10.1.2.3": true,
		"11.1.2.3:80": false, "[2001:db8::2]:80": false, "": false, "@": false,
	} {
		r := from(peer, "X-Forwarded-For", "10.0.0.1")
		if got := trusted(r); got != want {
			t.Errorf("%q: %v", peer, got)
		}
	}

	// Where every request passes a proxy, each comes from one.
	hops, err := FromProxy(Proxies{Hops: 1})
	if err != nil || !hops(from("@", "X-Forwarded-For")) {
		t.Error(err)
	}
	_, err = FromProxy(Proxies{})
	if _, same := ForwardedIP(Proxies{}); err == nil || err.Error() != same.Error() {
		t.Errorf("%v, want %v", err, same)
	}
}
