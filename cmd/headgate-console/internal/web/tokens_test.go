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
	page.has("nightly", "deploy")

	// One of them asks first, and then all that are left.
	list, err := w.TokensOf(t.Context(), w.admin, "x")
	w.must(err)
	one := url.Values{"id": {list[0].ID}}
	admin.post("/users/x/tokens", one).want(http.StatusOK).has("Revoke the token " + list[0].Label + " of x?")
	one.Set("confirm", "yes")
	admin.post("/users/x/tokens", one).goes("/users/x?done=revoked")
	if page := admin.get("/users/x"); strings.Contains(page.text, list[0].Label) ||
		!strings.Contains(page.text, list[1].Label) {
		t.Errorf("after the end of %s the page is %s", list[0].Label, page.text)
	}
	admin.post("/users/x/tokens", url.Values{"id": {"none"}}).want(http.StatusNotFound)
	admin.post("/users/x/tokens", nil).want(http.StatusOK).has(">Revoke all tokens</button>")
	admin.post("/users/x/tokens", url.Values{"confirm": {"yes"}}).goes("/users/x?done=tokens")
	admin.get("/users/x").lacks(list[1].Label)
}

func TestChangeOfThePasswordAsksAboutTokens(t *testing.T) {
	w := newWorld(t)
	w.person("x", nil)
	w.twoTokens("x")
	b := w.as("x")
	b.get("/account").has("Revoke my 2 tokens")

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
	b.get("/account").lacks("Revoke my")
}
