package api

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/trustedproxy"
)

// proxied returns a world that trusts proxies in 10.0.0.0/8.
func proxied(t *testing.T) *world {
	t.Helper()
	f, err := trustedproxy.New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "X-User")
	if err != nil {
		t.Fatal(err)
	}
	return newWorld(t, func(o *Options) { o.Proxies = f })
}

// from sends a request from an address.
func (w *world) from(peer, as string, r request) answer {
	w.t.Helper()
	req := r.build(w.cast[as])
	req.RemoteAddr = peer
	return w.send(req)
}

const (
	proxy    = "10.0.0.1:1"
	stranger = "192.0.2.1:1"
)

func TestProxyUserIsLoggedIn(t *testing.T) {
	w := proxied(t)
	apps := func(headers ...string) request { return request{"GET", "/api/apps", nil, headers} }

	// roles tells the users apart: an owner of a, a viewer of a who owns b, and one with none.
	const owner, viewer = "a owner", "a viewer, b owner"
	roles := func(a answer) string {
		t.Helper()
		var list []string
		for i, app := range a.want(200).names("apps", "name") {
			list = append(list, app+" "+a.names("apps", "role")[i])
		}
		return strings.Join(list, ", ")
	}

	// A name from the proxy is a log-in of its own: no password has to be changed, and a cookie of
	// another user does not count. A token is more than the name; without one the cookie counts.
	for _, c := range []struct{ as, named, want string }{
		{"nobody", "owner", owner}, {"nobody", "newcomer", ""}, {"viewer", "owner", owner},
		{"read token", "viewer", owner},
	} {
		if got := roles(w.from(proxy, c.as, apps("X-User", c.named))); got != c.want {
			t.Errorf("%s, named %s, has the roles %q", c.as, c.named, got)
		}
	}
	w.from(proxy, "owner", apps()).want(200)

	// A name that is no user's, or two of them, is not replaced by the session that came along.
	for _, name := range []string{"none", "disabled", "owner, viewer", "Owner", "<x>"} {
		w.from(proxy, "owner", apps("X-User", name)).want(401)
	}

	twice := apps("X-User", "owner").build(w.cast["owner"])
	twice.RemoteAddr = proxy
	twice.Header.Add("X-User", "owner")
	w.send(twice).want(401)

	// The header of a stranger is ignored, whatever address it claims to have.
	w.from(stranger, "nobody", apps("X-User", "owner", "X-Forwarded-For", "10.0.0.1")).want(401)
	if got := roles(w.from(stranger, "viewer", apps("X-User", "owner"))); got != viewer {
		t.Errorf("a stranger's header gives %q", got)
	}
}

func TestProxyChangeNeedsTheSameOrigin(t *testing.T) {
	w := proxied(t)

	change := func(headers ...string) request {
		return request{"PUT", "/api/policies/p/mode", object{"mode": "shadow", "version": 1},
			append(headers, "X-User", "owner")}
	}

	// A browser sends what the proxy adds along with forms of other sites, as it does with a
	// cookie.
	w.from(proxy, "nobody", change("Sec-Fetch-Site", "cross-site")).want(403).wantValue("cross-origin", "code")
	w.from(proxy, "nobody", change("Origin", "https://evil.example")).want(403)
	w.from(proxy, "nobody", change("X-Forwarded-For", "192.0.2.7")).want(200)

	log := w.audit(service.AuditQuery{Action: "policy.update", Outcome: service.Done})
	if len(log) != 1 || log[0].Address != "192.0.2.7" || log[0].Via != "proxy" || log[0].Actor != "owner" {
		t.Errorf("the audit log says %+v", log)
	}
}

func TestProxyAddressLimitsWrongTokens(t *testing.T) {
	w := proxied(t)
	wrong := func(from string) request {
		return request{"GET", "/api/apps", nil, []string{"Authorization", "Bearer hgt_wrong", "X-Forwarded-For", from}}
	}
	for range wrongTokens {
		w.from(proxy, "nobody", wrong("192.0.2.7")).want(401)
		w.from(stranger, "nobody", wrong("192.0.2.8")).want(401)
	}
	w.from(proxy, "nobody", wrong("192.0.2.7")).want(429)
	w.from(proxy, "nobody", wrong("192.0.2.9")).want(401)
	w.from(stranger, "nobody", wrong("192.0.2.9")).want(429) // the header of a stranger is ignored
}

func TestProxyUnknownNameIsNoWrongToken(t *testing.T) {
	w := proxied(t)
	for range wrongTokens + 1 {
		w.from(proxy, "owner", request{"GET", "/api/apps", nil, []string{"X-User", "disabled"}}).want(401)
	}
	entries, err := w.Audit(t.Context(), w.actor("administrator"), service.AuditQuery{Action: "session.login",
		Object: "user:disabled", Outcome: service.Refused, Limit: service.MaxPerPage})
	if err != nil || len(entries) != 60 {
		t.Errorf("%d refusals are in the audit log, want as many as are written in an hour: %v", len(entries), err)
	}
}
