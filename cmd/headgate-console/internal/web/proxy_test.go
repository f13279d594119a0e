package web

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/trustedproxy"
)

// behind makes the pages trust a proxy that names the user in X-User. The browser
// of the tests comes from 127.0.0.1.
func behind(t *testing.T, proxy string) func(*Options) {
	t.Helper()
	f, err := trustedproxy.New([]netip.Prefix{netip.MustParsePrefix(proxy)}, "X-User")
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Proxies = f }
}

// sends returns a browser that adds headers to its requests.
func (b *browser) sends(pairs ...string) *browser {
	more := *b
	more.header = http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		more.header.Add(pairs[i], pairs[i+1])
	}
	return &more
}

func TestProxyUserNeedsNoLogin(t *testing.T) {
	w := newWorld(t, behind(t, "127.0.0.0/8"))
	oneTime, err := w.CreateUser(t.Context(), w.admin, "ann")
	w.must(err)

	// A page opens at once, without a cookie.
	got := w.browser().sends("X-User", "ann").get("/policies").want(http.StatusOK)
	if !strings.Contains(got.text, ">ann</span>") || got.header.Get("Set-Cookie") != "" {
		t.Errorf("ann is not in, or has a session: %v %s", got.header, got.text)
	}

	// What is done is audited as done by way of the proxy, from the address that it names.
	b := w.browser().sends("X-User", "admin", "X-Forwarded-For", "192.0.2.7")
	b.post("/apps", url.Values{"name": {"new"}}).goes("/apps?done=app")

	rows, err := w.Audit(t.Context(), w.admin, service.AuditQuery{Action: "app.create", Object: "app:new"})
	w.must(err)
	if len(rows) != 1 || rows[0].Actor != "admin" || rows[0].Via != "proxy" || rows[0].Address != "192.0.2.7" {
		t.Errorf("the audit log says %+v", rows)
	}

	// The one session is the one with which the test began.
	sessions, err := w.Sessions(t.Context(), w.admin)
	w.must(err)
	if len(sessions) != 1 {
		t.Errorf("there are %d sessions", len(sessions))
	}

	w.browser().post("/login", url.Values{"name": {"ann"}, "password": {oneTime}}).
		goes("/account") // the proxy has not used it up
}

func TestProxyInvalidNamesAreRefused(t *testing.T) {
	w := newWorld(t, behind(t, "127.0.0.0/8"))
	w.person("gone", nil)
	w.must(w.DisableUser(t.Context(), w.admin, "gone"))

	in := w.as("admin")
	// Each value is no name of a user who is enabled, or leaves open which one is meant.
	for name, headers := range map[string][]string{
		"nobody known": {"X-User", "nobody"}, "disabled": {"X-User", "gone"}, "another case": {"X-User", "Admin"},
		"a list": {"X-User", "admin, ann"}, "two lines": {"X-User", "admin", "X-User", "ann"},
		"the same twice": {"X-User", "admin", "X-User", "admin"},
		"no name":        {"X-User", "<script>"},
	} {
		for _, b := range []*browser{w.browser(), in} { // another user's session does not count
			got := b.sends(headers...).get("/policies").want(http.StatusForbidden)
			if !strings.Contains(got.text, "You cannot sign in") || strings.Contains(got.text, "<script>alert") {
				t.Errorf("%s: %s", name, got.text)
			}
		}
	}

	// Only a user who exists has an entry: one for each of the two browsers.
	rows, err := w.Audit(t.Context(), w.admin,
		service.AuditQuery{Action: "session.login", Object: "user:gone", Outcome: service.Refused})
	w.must(err)
	if len(rows) != 2 || rows[0].Via != "proxy" || rows[0].Actor != "" {
		t.Errorf("the audit log says %+v", rows)
	}

	// Without a name, a session of the console's own still counts.
	in.get("/policies").want(http.StatusOK)
	in.sends("X-User", "").get("/policies").want(http.StatusOK)
}

func TestProxyMustBeTrusted(t *testing.T) {
	for _, change := range []func(*Options){behind(t, "10.0.0.0/8"), func(*Options) {}} {
		w := newWorld(t, change)
		b := w.browser().sends("X-User", "admin", "X-Forwarded-For", "10.0.0.1")
		b.get("/policies").goes("/login?next=%2Fpolicies")
		b.post("/apps", url.Values{"name": {"new"}}).want(http.StatusUnauthorized)
		b.get("/login").want(http.StatusOK)
		w.as("admin").sends("X-User", "nobody").get("/policies").want(http.StatusOK)
	}
}

func TestProxyFormsOfOtherSitesAreRefused(t *testing.T) {
	w := newWorld(t, behind(t, "127.0.0.0/8"))
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		b := w.browser().sends(append(headers, "X-User", "admin")...)
		b.post("/apps", url.Values{"name": {"new"}}).want(http.StatusForbidden)
	}
	if apps, err := w.Apps(t.Context(), w.admin); err != nil || len(apps) != 2 {
		t.Errorf("the applications are %v, %v", apps, err)
	}
}

func TestProxyReplacesSignInAndOut(t *testing.T) {
	w := newWorld(t, behind(t, "127.0.0.0/8"))
	b := w.browser().sends("X-User", "admin")

	b.get("/login?next=/keys").goes("/keys")

	// To sign in or out is not the console's business, and it says whose it is.
	if got := b.post("/login", url.Values{"name": {"admin"}, "password": {password}}).
		goes("/"); got.header.Get("Set-Cookie") != "" {
		t.Error("there is a session")
	}

	b.post("/logout", nil).want(http.StatusConflict).has("Sign out where you have signed in")

	page := b.get("/account").want(http.StatusOK)
	page.legible("the account")
	if page.form("/account/password") != nil || page.form("/account/tokens") == nil ||
		!strings.Contains(page.text, "has signed you in as admin") {
		t.Errorf("the account is %s", page.text)
	}

	// A password would be one for a way in that no user takes.
	form := url.Values{"old": {password}, "password": {"seven green canals"}, "repeat": {"seven green canals"}}
	b.post("/account/password", form).want(http.StatusConflict)

	w.as("admin")
}

func TestProxyAddressLimitsLogins(t *testing.T) {
	for _, row := range []struct {
		proxy string
		other int // the status of the log-in from another address
	}{
		{"127.0.0.0/8", http.StatusUnauthorized},
		{"10.0.0.0/8", http.StatusTooManyRequests}, // the address that it names is ignored
	} {
		w := newWorld(t, behind(t, row.proxy))
		wrong := url.Values{"name": {"admin"}, "password": {"wrong"}}

		// Five wrong passwords are what an address may send, and the sixth is too many.
		b := w.browser().sends("X-Forwarded-For", "192.0.2.1")
		for range 5 {
			b.post("/login", wrong).want(http.StatusUnauthorized)
		}
		b.post("/login", wrong).want(http.StatusTooManyRequests)

		// The other address is another one only where the proxy is believed.
		w.browser().sends("X-Forwarded-For", "192.0.2.2").post("/login", wrong).want(row.other)
	}
}
