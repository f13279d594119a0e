package trustedproxy

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

const header = "X-User"

func proxies(t *testing.T, list ...string) *Proxies {
	t.Helper()
	var trusted []netip.Prefix
	for _, s := range list {
		trusted = append(trusted, netip.MustParsePrefix(s))
	}
	f, err := New(trusted, header)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func from(peer string, headers ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = peer
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestAddressIsReadFromTrustedPeersOnly(t *testing.T) {
	f := proxies(t, "10.0.0.0/8", "fd00::/8")
	const xff = "X-Forwarded-For"

	// The last address that is not of a proxy counts: a client may write what it likes before it.
	for _, row := range []struct {
		r    *http.Request
		want string
	}{
		{from("10.0.0.1:1", xff, "192.0.2.7"), "192.0.2.7"},
		{from("[::ffff:10.0.0.1]:1", xff, "192.0.2.7"), "192.0.2.7"},
		{from("[fd00::1%eth0]:1", xff, "2001:db8::7"), "2001:db8::7"},
		{from("10.0.0.1:1", xff, "198.51.100.1, 192.0.2.7, 10.9.9.9"), "192.0.2.7"},
		{from("10.0.0.1:1", xff, "198.51.100.1", xff, "192.0.2.7"), "192.0.2.7"},

		// If the last entry is no address, that of the proxy stands for it. Other headers are not
		// read, as a proxy may pass them on as the client wrote them.
		{from("10.0.0.1:1"), "10.0.0.1"},
		{from("10.0.0.1:1", xff, "junk"), "10.0.0.1"},
		{from("10.0.0.1:1", xff, "192.0.2.7, junk"), "10.0.0.1"},
		{from("10.0.0.1:1", "X-Real-Ip", "192.0.2.7", "Forwarded", "for=192.0.2.7"), "10.0.0.1"},

		// These peers are no proxies. The last one is at a Unix socket, so it has no address.
		{from("192.0.2.1:1", xff, "192.0.2.7"), "192.0.2.1:1"},
		{from("11.0.0.1:1", xff, "10.0.0.1"), "11.0.0.1:1"},
		{from("[2001:db8::1]:1", xff, "10.0.0.1"), "[2001:db8::1]:1"},
		{from("@", xff, "192.0.2.7"), "@"},
	} {
		if got := f.Address(row.r); got != row.want {
			t.Errorf("%s %v: %q, want %q", row.r.RemoteAddr, row.r.Header, got, row.want)
		}
	}

	var none *Proxies
	if got := none.Address(from("10.0.0.1:1", xff, "192.0.2.7")); got != "10.0.0.1:1" {
		t.Errorf("without proxies it is %q", got)
	}
}

func TestUserIsReadFromTrustedPeersOnly(t *testing.T) {
	f := proxies(t, "10.0.0.0/8")

	for _, row := range []struct {
		r     *http.Request
		name  string
		named bool
	}{
		{from("10.0.0.1:1", header, "ann"), "ann", true},
		{from("10.0.0.1:1", "x-user", "ann"), "ann", true},
		{from("10.0.0.1:1", header, "ann, bob"), "ann, bob", true},

		// Two headers may be of two authors, so none of them names a user, and yet the request
		// claims one.
		{from("10.0.0.1:1", header, "ann", header, "bob"), "", true},
		{from("10.0.0.1:1", header, "ann", header, "ann"), "", true},
		{from("10.0.0.1:1", header, "", header, "ann"), "", true},

		// An empty header claims no user. If X_User counted as X-User, as it does for some servers,
		// clients could send it past a proxy that removes X-User.
		{from("10.0.0.1:1", header, ""), "", false},
		{from("10.0.0.1:1"), "", false},
		{from("10.0.0.1:1", "X_User", "ann"), "", false},
		{from("192.0.2.1:1", header, "ann"), "", false},
		{from("192.0.2.1:1", header, "ann", "X-Forwarded-For", "10.0.0.1"), "", false},
		{from("@", header, "ann"), "", false},
	} {
		if name, named := f.User(row.r); name != row.name || named != row.named {
			t.Errorf("%s %v: %q %v", row.r.RemoteAddr, row.r.Header, name, named)
		}
	}

	// Where no header is configured, its name is "", which a header of a request can have, too.
	for _, f := range []*Proxies{nil, {trusted: f.trusted, client: f.client}} {
		if name, named := f.User(from("10.0.0.1:1", header, "ann", "", "ann")); named {
			t.Errorf("without a header it is %q", name)
		}
	}
}

func TestNewRefusesBadProxiesAndHeaders(t *testing.T) {
	if _, err := New(nil, header); err == nil {
		t.Error("no proxy is trusted, and there is no error")
	}
	one := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, name := range []string{"a b", "X-User:", "cookie", "Authorization", "x-forwarded-for"} {
		if _, err := New(one, name); err == nil {
			t.Errorf("the header %q may name users", name)
		}
	}
}
