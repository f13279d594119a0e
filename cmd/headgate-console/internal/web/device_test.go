package web

import (
	"net/http"
	"net/url"
	"testing"
)

// A browser keeps its device when the session ends, and logs in with it where too many
// others have failed.
func TestLoginInAKnownBrowserPassesAnAttack(t *testing.T) {
	w := newWorld(t)
	w.person("x", nil)

	// The first log-in leaves the device in the browser, and the log-out takes away only the
	// session.
	b := w.as("x")
	b.post("/logout", nil).goes("/login?done=out")

	// Five wrong passwords close the way in for all browsers that the user has not used.
	attacker := w.browser()
	wrong := url.Values{"name": {"x"}, "password": {"wrong"}}
	for range 5 {
		attacker.post("/login", wrong).want(http.StatusUnauthorized)
	}
	attacker.post("/login", wrong).want(http.StatusTooManyRequests)

	right := url.Values{"name": {"x"}, "password": {password}}
	attacker.post("/login", right).want(http.StatusTooManyRequests)

	// The user's own browser gets in, and keeps the device that it has.
	b.post("/login", right).goes("/")
	for _, c := range b.post("/login", right).cookies() {
		if c.Name == "headgate-device" {
			t.Error("a known device was replaced")
		}
	}

	// A wrong password makes no device known.
	for _, c := range w.browser().post("/login", url.Values{"name": {"admin"}, "password": {"wrong"}}).cookies() {
		t.Errorf("a failed log-in sets the cookie %s", c.Name)
	}
}

func (a *answer) cookies() []*http.Cookie { return (&http.Response{Header: a.header}).Cookies() }
