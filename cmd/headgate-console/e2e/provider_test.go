package e2e

import (
	"context"
	"net/http"
	"testing"

	"github.com/oauth2-proxy/mockoidc"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// TestProvider signs in at a provider of OpenID Connect: a user of the console gets to the page
// that was asked for, and a stranger is refused. With SQLite they have a mouse, and with MariaDB a
// keyboard only.
func TestProvider(t *testing.T) {
	t.Parallel() // the test mostly waits for other programs
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) { signInAtProvider(t, e.open(t), e.name == "mariadb") })
	}
}

func signInAtProvider(t *testing.T, d *database, keyboard bool) {
	browser := chromium(t)
	console, _ := build(t)

	h := &house{t: t, ctx: t.Context(), sessions: map[string]string{}}
	d.with(func(_ context.Context, s *service.Service, first string) {
		h.s = s
		h.admin = h.enter(service.FirstUser, first)
		_, err := h.s.CreateUser(h.ctx, h.admin, "ada") // who has no password of her own
		h.must(err)
	})

	people, f := provider(t), openFront(t)
	d.env = append(d.env, "HEADGATE_CONSOLE_OIDC_SECRET="+people.ClientSecret)
	p := d.serve(console, "-oidc-issuer", people.Issuer(), "-oidc-client", people.ClientID, "-public-url", f.url)
	f.leadsTo(t, p.address)

	b := browse(t, browser)
	b.keyboard = keyboard

	// ada is known to the console, and is led to the page that she asked for.
	people.QueueUser(&mockoidc.MockUser{Subject: "4711", PreferredUsername: "ada", Email: "ada@example.com"})
	b.navigate(f.url + "/keys?view=one")
	if status := b.press("Sign in at your organization"); status != http.StatusOK {
		t.Errorf("the page after the log-in has status %d", status)
	}
	b.reads("Which policies match it, and whether it would pass.")
	b.pick("Account")
	b.reads("You are signed in at your organization or by a proxy")
	b.signOut()
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
