package config

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestProxiesAreTrustedByAddressOrPrefix(t *testing.T) {
	for _, row := range []struct {
		args []string
		ok   bool
	}{
		{[]string{"-trusted-proxy", "10.0.0.0/8"}, true},
		{[]string{"-trusted-proxy", "192.0.2.1", "-trusted-proxy", "2001:db8::/32",
			"-trusted-proxy", "::ffff:192.0.2.1"}, true},
		{[]string{"-trusted-proxy", "10.0.0.0/8", "-identity-header", "X-User"}, true},

		// 10.0.0.1/8 may mean one address or a whole network, and two prefixes need two flags.
		{[]string{"-trusted-proxy", ""}, false},
		{[]string{"-trusted-proxy", "10.0.0.1/8"}, false},
		{[]string{"-trusted-proxy", "10.0.0.0/8,11.0.0.0/8"}, false},

		// A prefix of everything, also by mapped addresses, would let each client choose its
		// address.
		{[]string{"-trusted-proxy", "0.0.0.0/0"}, false},
		{[]string{"-trusted-proxy", "::/0"}, false},
		{[]string{"-trusted-proxy", "::ffff:0:0/96"}, false},

		// What a zone or a name stands for depends on the machine.
		{[]string{"-trusted-proxy", "fe80::1%eth0"}, false},
		{[]string{"-trusted-proxy", "localhost"}, false},

		// A header that names users needs a proxy that sets it, and none that browsers send
		// themselves.
		{[]string{"-identity-header", "X-User"}, false},
		{[]string{"-trusted-proxy", "10.0.0.0/8", "-identity-header", "Cookie"}, false},
		{[]string{"-trusted-proxy", "10.0.0.0/8", "-identity-header", "X-User:"}, false},
	} {
		c, err := parse(nil, row.args...)
		if (err == nil) != row.ok || (c.Proxies != nil) != row.ok {
			t.Errorf("%q: %v %v", row.args, c.Proxies, err)
		}

		if err != nil && !strings.HasPrefix(err.Error(), "-") {
			t.Errorf("%q: the mistake does not name the flag: %v", row.args, err)
		}
	}
}

func TestParseProxyFlags(t *testing.T) {
	c, err := parse(nil, "-trusted-proxy", "10.0.0.0/8", "-trusted-proxy", "192.0.2.1", "-identity-header", "x-user")
	if err != nil {
		t.Fatal(err)
	}

	// Each flag adds a proxy to those before it, and an address trusts no neighbour.
	for peer, trusted := range map[string]bool{"10.9.9.9:1": true, "192.0.2.1:1": true, "192.0.2.2:1": false} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = peer
		r.Header.Set("X-User", "ann")
		r.Header.Set("X-Forwarded-For", "198.51.100.1")

		name, named := c.Proxies.User(r)
		if address := c.Proxies.Address(r); named != trusted || (name == "ann") != trusted ||
			(address == "198.51.100.1") != trusted {
			t.Errorf("%s: %q %v %s", peer, name, named, address)
		}
	}
}

func TestCookiesAreSecureWithTLS(t *testing.T) {
	cert, key := certificate(t)

	for _, row := range []struct {
		args   []string
		secure bool
	}{
		// Browsers send secure cookies over TLS only: with them, people could not log in to a
		// console on plain HTTP.
		{nil, false},
		{[]string{"-secure-cookies"}, true},
		{[]string{"-tls-cert", cert, "-tls-key", key}, true},
		{[]string{"-insecure-http"}, false},
	} {
		if c, err := parse(nil, row.args...); err != nil || c.Secure != row.secure {
			t.Errorf("%q: %v %v", row.args, c.Secure, err)
		}
	}
}
