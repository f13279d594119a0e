package callers

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

func callers(t *testing.T, o Options) *Callers {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTrustsAreByAddressOrPrefix(t *testing.T) {
	c := callers(t,
		Options{Trusted: []string{"10.0.0.0/8", "192.0.2.1", "::ffff:192.0.2.2", "2001:db8::/32",
			"::ffff:172.16.0.0/108"}})
	for peer, want := range map[string]bool{
		// An address of IPv4 is the same in the form of IPv6, and a zone does not count.
		"10.9.9.9:1": true, "10.9.9.9": true, "192.0.2.1:1": true, "192.0.2.2:1": true, "[::ffff:10.0.0.1]:1": true,
		"[2001:db8::1%eth0]:1": true, "2001:db8::1": true, "172.16.9.9:1": true, "[::ffff:172.16.9.9]:1": true,

		// What is no address is no trusted proxy, for a Unix socket or a name can be anybody's.
		"192.0.2.3:1": false, "[2001:db9::1]:1": false, "": false, "@": false, "unix": false, "proxy.example:1": false,
	} {
		if got := c.Trusts(peer); got != want {
			t.Errorf("%q is trusted: %v, want %v", peer, got, want)
		}
	}

	if callers(t, Options{}).Trusts("127.0.0.1:1") {
		t.Error("without options a peer is trusted")
	}
}

// keys returns the keys that policies with the recipes count a request by.
func keys(t *testing.T, c *Callers, r core.Request, recipes ...string) string {
	t.Helper()
	var out []string
	for _, recipe := range recipes {
		compiled, err := policy.Compile("shop",
			[]policy.Policy{{Name: "x", Apps: []string{"shop"}, Limit: core.MustParseLimit("1/1s"), Key: recipe}},
			c.Bindings())
		if err != nil {
			t.Fatal(err)
		}

		key, ok := compiled.Rules()[0].Key(r)
		if !ok {
			t.Errorf("%s does not apply", recipe)
		}
		out = append(out, key)
	}
	return strings.Join(out, " | ")
}

func TestBindingsBelieveTrustedProxiesAlone(t *testing.T) {
	c := callers(t, Options{Trusted: []string{"10.0.0.0/8"}, UserHeader: "x-user"})
	for _, row := range []struct {
		name, peer string
		headers    []string // names and values
		want       string
	}{
		// The second key is by /56: an address of IPv4 is its own, and one of IPv6 its network.
		{"a trusted proxy", "10.0.0.1:1", []string{"X-User", "ann", "X-Forwarded-For", "198.51.100.7"},
			"198.51.100.7 | 198.51.100.7 | ann"},
		{"an IPv6 caller", "10.0.0.1:1", []string{"X-User", "ann", "X-Forwarded-For", "2001:db8::1"},
			"2001:db8::/64 | 2001:db8::/56 | ann"},

		// Two lines of a header that a proxy sets once: one of them is the caller's.
		{"two users", "10.0.0.1:1", []string{"X-User", "ann", "X-User", "bob"}, "10.0.0.1 | 10.0.0.1 | "},
		{"no user", "10.0.0.1:1", nil, "10.0.0.1 | 10.0.0.1 | "},
		{"a caller who forges all", "192.0.2.1:1", []string{"X-User", "ann", "X-Forwarded-For", "198.51.100.7"},
			"192.0.2.1 | 192.0.2.1 | "},
		{"a caller who forges behind a proxy", "10.0.0.1:1", []string{"X-Forwarded-For", "198.51.100.7, 203.0.113.5"},
			"203.0.113.5 | 203.0.113.5 | "},
	} {
		r := &test.Request{Ctx: t.Context(), Peer: row.peer, Headers: http.Header{}}
		for i := 0; i < len(row.headers); i += 2 {
			http.Header(r.Headers).Add(row.headers[i], row.headers[i+1])
		}

		if got := keys(t, c, r, "ip", "ip/56", "user"); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

func TestBindingsHaveNoUserWithoutItsHeader(t *testing.T) {
	c := callers(t, Options{Trusted: []string{"10.0.0.0/8"}})
	p := []policy.Policy{{Name: "x", Apps: []string{"shop"}, Limit: core.MustParseLimit("1/1s"), Key: "user"}}
	if _, err := policy.Compile("shop", p, c.Bindings()); err == nil ||
		!strings.Contains(err.Error(), "Bindings.User") {
		t.Errorf("a policy by user: %v", err)
	}
}

func TestHandlerPutsThePlanIntoTheContext(t *testing.T) {
	c := callers(t,
		Options{Trusted: []string{"10.0.0.0/8"}, PlanHeader: "X-Plan", UserHeader: "X-User", AddressHeader: "X-Caller"})

	compiled, err := policy.Compile("shop",
		[]policy.Policy{{Name: "x", Apps: []string{"shop"}, Key: "global", Limit: core.MustParseLimit("1/1h"),
			Plans: map[string]core.Limit{"pro": core.MustParseLimit("5/1h")}, PlanBy: PlanBy}}, c.Bindings())
	if err != nil {
		t.Fatal(err)
	}

	var seen http.Header

	// Within the limiter, so that it sees what the server behind would get.
	h := c.Handler(nethttp.New(limiter.MustNew(limiter.Config{Rules: compiled.Rules(), Headers: limiter.XRateLimit}))(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header })))

	limit := func(peer string, plans ...string) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = peer
		r.Header["X-Plan"] = plans
		r.Header.Set("X-User", "ann")
		r.Header.Set("X-Caller", "198.51.100.7")

		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Header().Get("X-Ratelimit-Limit")
	}

	if got := limit("192.0.2.1:1", "pro"); got != "1" {
		t.Errorf("a caller names a plan: the limit is %s", got)
	}

	for _, name := range []string{"X-Plan", "X-User", "X-Caller"} {
		if seen[name] != nil {
			t.Errorf("the header %s of a caller reached the server", name)
		}
	}

	if got := limit("10.0.0.1:1", "pro"); got != "5" {
		t.Errorf("a trusted proxy names a plan: the limit is %s, want 5", got)
	}
	if seen.Get("X-User") != "ann" || seen.Get("X-Plan") != "pro" {
		t.Errorf("the server got %v", seen)
	}

	// Which of two plans is meant cannot be known, and the smaller limit holds.
	if got := limit("10.0.0.1:1", "pro", "pro"); got != "1" {
		t.Errorf("two plans: the limit is %s", got)
	}
	if got := limit("10.0.0.1:1"); got != "1" {
		t.Errorf("no plan: the limit is %s", got)
	}
}

func TestAddressIsThatOfTheCaller(t *testing.T) {
	trusting, err := New(Options{Trusted: []string{"10.0.0.0/8"}})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}

	// A client that is no proxy may name any address, which counts for nothing.
	for _, row := range []struct {
		callers         *Callers
		peer, forwarded string
		want            string
	}{
		{plain, "192.0.2.1:80", "198.51.100.1", "192.0.2.1"},
		{plain, "[2001:db8::1]:80", "", "2001:db8::1"},
		{plain, "@", "", "-"},
		{trusting, "192.0.2.1:80", "198.51.100.1", "192.0.2.1"},
		{trusting, "10.0.0.1:80", "198.51.100.1", "198.51.100.1"},
		{trusting, "10.0.0.1:80", "9.9.9.9, 2001:db8:1:2:3::4", "2001:db8:1:2:3::4"},
		{trusting, "10.0.0.1:80", "", "10.0.0.1"},
		{nil, "192.0.2.1:80", "", "192.0.2.1"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = row.peer
		if row.forwarded != "" {
			r.Header.Set("X-Forwarded-For", row.forwarded)
		}
		if got := row.callers.Address(r); got != row.want {
			t.Errorf("%s for %q: %s, want %s", row.peer, row.forwarded, got, row.want)
		}
	}
}
