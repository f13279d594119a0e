package keyfuncs

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
)

// costs lists the allocations of each key: one for a text that is not in the request.
var costs = []struct {
	name   string
	k      core.KeyFunc
	r      *test.Request
	allocs float64
}{
	{"RemoteIP/IPv4", RemoteIP, from("203.0.113.7:4711", ""), 0},
	{"RemoteIP/IPv6", RemoteIP, from("[2001:db8:1:2::7]:4711", ""), 1},
	{"RemoteIP/mapped", RemoteIP, from("[::ffff:203.0.113.7]:4711", ""), 1},
	{"RemoteIP/zone", RemoteIP, from("[fe80::7%eth0]:4711", ""), 1},
	{"RemoteIP/socket", RemoteIP, from("", ""), 1},
	{"ForwardedIP/stranger", MustForwardedIP(Proxies{Trusted: Private()}),
		from("203.0.113.7:80", "X-Forwarded-For", "6.6.6.6"), 0},
	{"ForwardedIP/IPv4", MustForwardedIP(Proxies{Trusted: Private()}),
		from("10.0.0.1:80", "X-Forwarded-For", "6.6.6.6, 203.0.113.7"), 0},
	{"ForwardedIP/two lines", MustForwardedIP(Proxies{Trusted: Private()}),
		from("10.0.0.1:80", "X-Forwarded-For", "6.6.6.6, 203.0.113.7", "10.0.0.2"), 0},
	{"ForwardedIP/IPv6", MustForwardedIP(Proxies{Trusted: Private()}),
		from("10.0.0.1:80", "X-Forwarded-For", "2001:db8:1:2::7"), 1},
	{"ForwardedIP/hops", MustForwardedIP(Proxies{Hops: 2}), from("10.0.0.1:80", "X-Forwarded-For",
		"203.0.113.7, 198.51.100.2"), 0},
	{"ForwardedIP/RFC 7239", MustForwardedIP(Proxies{Trusted: Private(), Header: "Forwarded"}),
		from("10.0.0.1:80", "Forwarded", `for=6.6.6.6, for="203.0.113.7:80";proto=https`), 0},
	{"ForwardedIP/X-Real-Ip", MustForwardedIP(Proxies{Trusted: Private(), Header: "X-Real-Ip"}),
		from("10.0.0.1:80", "X-Real-Ip", "203.0.113.7"), 0},
	{"ForwardedIP/900 kB", MustForwardedIP(Proxies{Trusted: Private()}),
		from("10.0.0.1:80", "X-Forwarded-For", strings.Repeat("10.0.0.1, ", 90_000)+"203.0.113.7"), 0},
	{"Header", Header("X-Tenant"), with("X-Tenant", "acme"), 0},
	{"Header/900 kB", Header("X-Tenant"), with("X-Tenant", strings.Repeat("a", 900_000)), 1},
	{"Cookie", Cookie("sid"), with("Cookie", "a=b; sid=0123456789abcdef0123456789abcdef"), 1},
	{"APIKey", APIKey("X-Api-Key"), with("X-Api-Key", "sk_live_0123456789abcdef0123456789abcdef"), 1},
	{"BearerToken/500 B", BearerToken, with("Authorization", "Bearer "+strings.Repeat("a", 500)), 1},
	{"BasicUser", BasicUser, with("Authorization", "Basic YWxpY2U6c2VjcmV0"), 2},
	{"UserID", UserID(user), signedIn("alice"), 0},
	{"Route", Route, &test.Request{Pattern: "/users/{id}"}, 0},
	{"Method", Method, &test.Request{Verb: "HEAD"}, 0},
	{"Host", Host, with("Host", "www.example.com:443"), 0},
	{"Join", Join(RemoteIP, Route), &test.Request{Peer: "203.0.113.7:80", Pattern: "/users/{id}"}, 1},
	{"First", First(UserID(user), RemoteIP), with(""), 1},
	{"When", When(Known(RemoteIP), RemoteIP), with(""), 0},
}

func BenchmarkKey(b *testing.B) {
	for _, c := range costs {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.k(c.r)
			}
		})
	}
}
