package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// twoTokens gives a user two tokens.
func (w *world) twoTokens(user string) {
	w.t.Helper()
	b := w.as(user)
	for _, label := range []string{"nightly", "deploy"} {
		b.post("/account/tokens", url.Values{"label": {label}, "scope": {"write"}, "days": {"30"}}).want(http.StatusOK)
	}
}

func TestTokensOfOthersOnTheirPage(t *testing.T) {
	w := newWorld(t)
	w.person("x", nil)
	w.twoTokens("x")
	admin := w.as("admin")

	page := admin.get("/users/x").want(http.StatusOK)
	page.legible("the page of a user")
	if !strings.Contains(page.text, "nightly") || !strings.Contains(page.text, "deploy") {
		t.Errorf("the tokens are not named: %s", page.text)
	}

	// One of them asks first, and then all that are left.
	list, err := w.TokensOf(t.Context(), w.admin, "x")
	w.must(err)
	one := url.Values{"id": {list[0].ID}}
	if got := admin.post("/users/x/tokens", one).want(http.StatusOK); !strings.Contains(got.text,
		"Revoke the token "+list[0].Label+" of x?") {
		t.Errorf("it does not ask: %s", got.text)
	}
	one.Set("confirm", "yes")
	admin.post("/users/x/tokens", one).goes("/users/x?done=revoked")
	if page := admin.get("/users/x"); strings.Contains(page.text, list[0].Label) ||
		!strings.Contains(page.text, list[1].Label) {
		t.Errorf("after the end of %s the page is %s", list[0].Label, page.text)
	}
	admin.post("/users/x/tokens", url.Values{"id": {"none"}}).want(http.StatusNotFound)
	if got := admin.post("/users/x/tokens", nil).want(http.StatusOK); !strings.Contains(got.text,
		">Revoke all tokens</button>") {
		t.Errorf("it does not ask about all: %s", got.text)
	}
	admin.post("/users/x/tokens", url.Values{"confirm": {"yes"}}).goes("/users/x?done=tokens")
	if page := admin.get("/users/x"); strings.Contains(page.text, list[1].Label) {
		t.Errorf("after the end of all the page is %s", page.text)
	}
}

func TestChangeOfThePasswordAsksAboutTokens(t *testing.T) {
	w := newWorld(t)
	w.person("x", nil)
	w.twoTokens("x")
	b := w.as("x")
	if page := b.get("/account"); !strings.Contains(page.text, "Revoke my 2 tokens") {
		t.Errorf("it does not ask: %s", page.text)
	}

	alive := func() (n int) {
		list, err := w.TokensOf(t.Context(), w.admin, "x")
		w.must(err)
		for _, token := range list {
			if token.RevokedAt.IsZero() {
				n++
			}
		}
		return n
	}

	// The box is ticked at first. A form without it keeps the tokens.
	form := url.Values{"old": {password}, "password": {"seven green canals"}, "repeat": {"seven green canals"}}
	b.post("/account/password", form).goes("/account?done=password")
	if n := alive(); n != 2 {
		t.Errorf("%d tokens are left, want 2", n)
	}
	form = url.Values{"old": {"seven green canals"}, "password": {password}, "repeat": {password}}
	b.submit("/account", "/account/password", form).goes("/account?done=password")
	if n := alive(); n != 0 {
		t.Errorf("%d tokens are left, want 0", n)
	}
	if page := b.get("/account"); strings.Contains(page.text, "Revoke my") {
		t.Errorf("it asks about nothing: %s", page.text)
	}
}
