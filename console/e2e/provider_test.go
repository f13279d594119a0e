package e2e

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/console/internal/service"
	"github.com/oauth2-proxy/mockoidc"
)

// TestProvider signs in at a provider of OpenID Connect: a user of the console gets to the page
// that was asked for, and a stranger is refused.
func TestProvider(t *testing.T) {
	t.Parallel() // the test mostly waits for other programs
	browser := chromium(t)
	console, _ := build(t)
	data := t.TempDir()
	h := &house{t: t, ctx: t.Context(), sessions: map[string]string{}}
	(&database{t: t, url: "sqlite://" + filepath.Join(data, "console.db")}).with(func(_ context.Context, s *service.Service, first string) {
		h.s = s
		h.admin = h.enter(service.FirstUser, first)
		_, err := h.s.CreateUser(h.ctx, h.admin, "ada") // who has no password of her own
		h.must(err)
	})
	people, f := provider(t), openFront(t)
	p := start(t, "console", console, []string{"HEADGATE_CONSOLE_OIDC_SECRET=" + people.ClientSecret}, "-data", data, "-listen", "127.0.0.1:0",
		"-oidc-issuer", people.Issuer(), "-oidc-client", people.ClientID, "-public-url", f.url)
	f.leadsTo(t, p.address)
	b := browse(t, browser)

	people.QueueUser(&mockoidc.MockUser{Subject: "4711", PreferredUsername: "ada", Email: "ada@example.com"})
	b.navigate(f.url + "/tester")
	if status := b.press("Sign in at your organization"); status != http.StatusOK {
		t.Errorf("the page after the log-in has status %d", status)
	}
	b.reads("See which policies match a request")
	b.press("ada")
	b.reads("You are signed in at your organization or by a proxy")
	b.press("Sign out")
	b.reads("You are signed out.")
	b.quiet()

	people.QueueUser(&mockoidc.MockUser{Subject: "4712", PreferredUsername: "mallory", Email: "mallory@example.com"})
	if status := b.press("Sign in at your organization"); status != http.StatusForbidden {
		t.Errorf("a stranger gets the status %d, want %d", status, http.StatusForbidden)
	}
	b.refusedWith(http.StatusForbidden)
	b.navigate(f.url + "/policies")
	b.reads("Sign in at your organization")
	b.quiet()
}
