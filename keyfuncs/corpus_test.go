package keyfuncs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/tally"
)

var (
	outer = form{"203.0.113.99", "203.0.113.99", false} // a caller outside the proxies
	lie   = form{"198.51.100.1", "198.51.100.1", false} // an entry that the client forges
	near  = form{"10.0.0.1", "10.0.0.1", true}          // a proxy
	far   = form{"fd00:10::2", "fd00:10::/64", true}    // another proxy
	bad   = form{"unknown", "", false}
)

// chain holds the entries after the peer, by lines of a header.
type chain [][]form

// chains returns chains with f at each place that may matter.
func chains(f form) []chain {
	return []chain{
		{{f}},
		{{lie, f}},
		{{lie}, {f}},
		{{f, near}},
		{{f}, {near}},
		{{lie, f, far, near}},
		{{lie}, {f, far}, {near}},
		{{f, outer}},
		{{f}, {lie}, {outer, near}},
		{{bad, f}, {near}},
	}
}

func (c chain) entries() (all []form) {
	for _, line := range c {
		all = append(all, line...)
	}
	return all
}

// lines writes the chain, with the space around commas that HTTP allows.
func (c chain) lines(write func(form) string) (lines []string) {
	for i, line := range c {
		var texts []string
		for _, f := range line {
			texts = append(texts, write(f))
		}
		lines = append(lines, strings.Join(texts, []string{", ", ",", " \t, "}[i%3]))
	}
	return lines
}

// believed is the oracle for a trust list. It finds the caller by the labels.
func believed(peer form, entries []form) string {
	caller := peer
	for i := len(entries) - 1; i >= 0 && caller.trusted && entries[i].key != ""; i-- {
		caller = entries[i]
	}
	return caller.key
}

// counted is the oracle for a number of hops.
func counted(peer form, entries []form, hops int) string {
	if len(entries) < hops {
		return peer.key
	}
	last := entries[len(entries)-hops:]
	for _, f := range last {
		if f.key == "" {
			return peer.key
		}
	}
	return last[0].key
}

// peers lists peers of all kinds.
var peers = []form{
	{"10.9.9.9:4711", "10.9.9.9", true},
	{"[::ffff:10.9.9.9]:4711", "10.9.9.9", true},
	{"[fd00:10::9%eth0]:4711", "fd00:10::/64", true},
	{"203.0.113.200:4711", "203.0.113.200", false},
	{"[64:ff9b::10.9.9.9]:4711", "10.9.9.9", false},
	{"@", "", false},
}

func TestForwardedIPFormsTrusted(t *testing.T) {
	// Every peer, form of an address and chain of header lines is combined; the expectation comes
	// from the tables.
	trusting := MustForwardedIP(Proxies{Trusted: trustedProxies})
	rows := 0
	for _, peer := range peers {
		for _, f := range forms() {
			for _, c := range chains(f) {
				r := from(peer.text, "X-Forwarded-For", c.lines(func(f form) string { return f.text })...)
				if got, want := keyOf(t, trusting, r), believed(peer, c.entries()); got != want {
					t.Errorf("peer %q, lines %.200q: key %q, want %q", peer.text, r.Header("X-Forwarded-For"), got,
						want)
				}
				rows++
			}
		}
	}

	tally.Add(t, "requests with addresses and forwarding headers in all their forms", int64(rows))

	// A table that shrank by mistake would make the test pass by saying nothing.
	if rows < 3000 {
		t.Errorf("%d rows are fewer than 3000", rows)
	}
}

func TestForwardedIPFormsHops(t *testing.T) {
	rows := 0

	// Counting needs no trust, so each number of hops is tried with peers of all kinds.
	for hops := 1; hops <= 5; hops++ {
		k := MustForwardedIP(Proxies{Hops: hops})
		for _, peer := range peers {
			for _, f := range forms() {
				for _, c := range chains(f) {
					r := from(peer.text, "X-Forwarded-For", c.lines(func(f form) string { return f.text })...)
					if got, want := keyOf(t, k, r), counted(peer, c.entries(), hops); got != want {
						t.Errorf("%d hops, peer %q, lines %.200q: key %q, want %q", hops, peer.text,
							r.Header("X-Forwarded-For"), got, want)
					}
					rows++
				}
			}
		}
	}

	tally.Add(t, "requests with addresses and forwarding headers in all their forms", int64(rows))
	if rows < 3000 {
		t.Errorf("%d rows are fewer than 3000", rows)
	}
}

// nodes adds the forms that only a node of RFC 7239 has: those with obfuscated ports.
func nodes() (all []form) {
	for _, f := range forms() {
		if f.text == `"1.2.3.4"` {
			continue // the test quotes by itself
		}
		all = append(all, f)
	}

	// Unquoted ports in the way of RFC 7239 are names that begin with an underscore.
	return append(all,
		form{"203.0.113.7:_port", "203.0.113.7", false},
		form{"10.1.2.3:_a.B-9_", "10.1.2.3", true},
		form{"[2001:db8::1]:_x", "2001:db8::/64", false},
		form{"2001:db8::1:_x", "2001:db8::/64", false},
		form{"203.0.113.7:_", "", false},
		form{"203.0.113.7:_é", "", false},
		form{"203.0.113.7:port", "", false},
		form{"2001:db8::1:_", "", false},
		form{"_hidden:80", "", false},
		form{"unknown:80", "", false},
		form{"unknown:_x", "", false},
	)
}

// elements are ways to write an element about a node.
var elements = []string{
	`for="N"`,
	`For="N";proto=https`,
	`by=_edge;FOR="N";host="a,b;for=6.6.6.6"`,
	`;by="[::1]";for="N";`,
	`host="\"";for="N";ext="\\"`,
	`for=N`,
	`by=203.0.113.9;for=N;host=api.example.com:8443;proto=https`,
	`proto=https; for=N ;	host=[2001:db8::1]:8443 `,
	`for="N" ; by=2001:db8::1`,
}

func TestForwardedNodes(t *testing.T) {
	// Trust and counting read the same elements.
	trusting := MustForwardedIP(Proxies{Trusted: trustedProxies, Header: "forwarded"})
	twoHops := MustForwardedIP(Proxies{Hops: 2, Header: "Forwarded"})
	rows := 0

	// Four peers are enough here, as TestForwardedIPFormsTrusted has them all.
	for _, peer := range peers[:4] {
		for _, f := range nodes() {
			for _, element := range elements {
				for _, c := range chains(f) {
					write := func(f form) string { return strings.Replace(element, "N", f.text, 1) }
					r := from(peer.text, "Forwarded", c.lines(write)...)
					if got, want := keyOf(t, trusting, r), believed(peer, c.entries()); got != want {
						t.Errorf("peer %q, lines %.200q: key %q, want %q", peer.text, r.Header("Forwarded"), got, want)
					}

					if got, want := keyOf(t, twoHops, r), counted(peer, c.entries(), 2); got != want {
						t.Errorf("two hops, peer %q, lines %.200q: key %q, want %q", peer.text, r.Header("Forwarded"),
							got, want)
					}
					rows++
				}
			}
		}
	}

	tally.Add(t, "requests with addresses and forwarding headers in all their forms", int64(rows))
	if rows < 3000 {
		t.Errorf("%d rows are fewer than 3000", rows)
	}
}

func TestForwardedIPSingleAddressHeader(t *testing.T) {
	// A header that holds one address has no chain to walk.
	for _, name := range []string{"X-Real-IP", "CF-Connecting-IP", "true-client-ip"} {
		k := MustForwardedIP(Proxies{Trusted: trustedProxies, Header: name})
		for _, peer := range peers {
			for _, f := range forms() {
				// A trusted peer's header decides if it is sound; else the peer is the caller.
				want := peer.key
				if peer.trusted && f.key != "" {
					want = f.key
				}
				if got := keyOf(t, k, from(peer.text, name, " "+f.text+"\t")); got != want {
					t.Errorf("%s, peer %q, value %.100q: key %q, want %q", name, peer.text, f.text, got, want)
				}

				// Several lines or entries are none of a proxy's making: the peer is the key.
				for _, lines := range [][]string{{f.text, lie.text}, {lie.text, f.text}, {lie.text + ", " + f.text},
					{f.text, f.text}, nil} {
					if got := keyOf(t, k, from(peer.text, name, lines...)); got != peer.key {
						t.Errorf("%s, peer %q, lines %.100q: key %q, want the peer %q", name, peer.text, lines, got,
							peer.key)
					}
				}
			}
		}
	}
}

func TestForwardedIPNamedHeaderOnly(t *testing.T) {
	names := []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip",
		"X-Client-Ip", "X-Forwarded", "X-Original-Forwarded-For", "Via"}

	// A request with all headers that any proxy is known to set.
	all := &test.Request{Peer: "10.0.0.1:80", Headers: map[string][]string{}}
	for i, name := range names {
		all.Headers[name] = []string{fmt.Sprintf("203.0.113.%d", i)}
	}

	all.Headers["Forwarded"] = []string{"for=203.0.113.1"}
	for i, name := range names {
		k := MustForwardedIP(Proxies{Trusted: []string{"10.0.0.1"}, Header: name})
		if got, want := keyOf(t, k, all), fmt.Sprintf("203.0.113.%d", i); got != want {
			t.Errorf("%s: key %q, want %q", name, got, want)
		}

		// Without the header that was configured, none of the others may be read in its stead.
		delete(all.Headers, name)
		if got := keyOf(t, k, all); got != "10.0.0.1" {
			t.Errorf("without %s: key %q, want the peer", name, got)
		}

		all.Headers[name] = []string{fmt.Sprintf("203.0.113.%d", i)}
		if name == "Forwarded" {
			all.Headers[name] = []string{"for=203.0.113.1"}
		}
	}

	// RemoteIP trusts none of them.
	if got := keyOf(t, RemoteIP, all); got != "10.0.0.1" {
		t.Errorf("RemoteIP read a header: %q", got)
	}
}

// attackers lists texts that a client may send and to which a proxy appends.
func attackers() (texts []string) {
	for _, f := range forms() {
		texts = append(texts, f.text, "10.0.0.1, "+f.text, f.text+", 10.0.0.1", f.text+",", f.text+",,",
			"for="+f.text, "for="+f.text+"; host=a:80;", "for=10.0.0.1 ;", `for="`+f.text+`"`, `for="`+f.text,
			`for="`+f.text+`\`, `x="`, `x="\`, `"`, `""`, `\"`, `for=10.0.0.1;x="`+f.text)
	}
	return texts
}

// A client that sends any header gets neither a second key nor the key of another
// client.
func TestForwardedIPIgnoresClientPrefix(t *testing.T) {
	// Three ways to be configured; the rows name what our own proxies append to the client's text.
	xff := MustForwardedIP(Proxies{Trusted: trustedProxies})
	hops := MustForwardedIP(Proxies{Hops: 1})
	rfc := MustForwardedIP(Proxies{Trusted: trustedProxies, Header: "Forwarded"})
	rows := []struct {
		k                    core.KeyFunc
		header, append, want string
	}{
		{xff, "X-Forwarded-For", "203.0.113.66", "203.0.113.66"},
		{xff, "X-Forwarded-For", "203.0.113.66, 10.0.0.1", "203.0.113.66"},
		{xff, "X-Forwarded-For", "2001:db8:66::1", "2001:db8:66::/64"},
		{hops, "X-Forwarded-For", "203.0.113.66", "203.0.113.66"},
		{rfc, "Forwarded", "for=203.0.113.66", "203.0.113.66"},
		{rfc, "Forwarded", `for="203.0.113.66:80";host="a"`, "203.0.113.66"},
		{rfc, "Forwarded", `for="[2001:db8:66::1]:80", for="10.0.0.1"`, "2001:db8:66::/64"},
		{rfc, "Forwarded", `for=2001:db8:66:0:1:2:3:4:4711; host=a:80 , for=10.0.0.1:80`, "2001:db8:66::/64"},
		{xff, "X-Forwarded-For", "2001:db8:66:0:1:2:3:4:4711, 10.0.0.1:80", "2001:db8:66::/64"},
		{hops, "X-Forwarded-For", "2001:db8:66:0:1:2:3:4:4711", "2001:db8:66::/64"},
	}

	for _, row := range rows {
		// The attacker's text comes before, in one line or several, with any spacing: the key stays
		// the caller's own.
		for _, text := range attackers() {
			for _, lines := range [][]string{
				{text + ", " + row.append}, {text + "," + row.append}, {text, row.append}, {text, text, row.append},
				{"", text + ", " + row.append},
			} {
				if got := keyOf(t, row.k, from("10.0.0.2:80", row.header, lines...)); got != row.want {
					t.Fatalf("%s %.300q: key %q, want %q", row.header, lines, got, row.want)
				}
			}
		}
	}
}

// A client that reaches the server itself gains nothing from any header.
func TestForwardedIPUntrustedPeer(t *testing.T) {
	for _, header := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip"} {
		k := MustForwardedIP(Proxies{Trusted: trustedProxies, Header: header})
		for _, text := range attackers() {
			if got := keyOf(t, k, from("203.0.113.66:80", header, text)); got != "203.0.113.66" {
				t.Fatalf("%s %.300q: key %q", header, text, got)
			}
		}
	}
}
