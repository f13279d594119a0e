package web

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/console/internal/auth"
	"github.com/headgate/headgate/console/internal/service"
)

// account is the page of the user who is logged in.
type account struct {
	User      service.Access
	Must      bool // the user must change the password first
	Proxied   bool // the proxy signs the user in, so the page has no passwords
	Sessions  []service.OpenSession
	Tokens    []token
	Apps      []appChoice
	MinLength int // of a password
	Draft     tokenForm
	Mistakes  mistakes
}

// token is an API token of the user, and whether it still works.
type token struct {
	service.Token
	Works bool
}

// tokenForm is a new token as it was filled in.
type tokenForm struct {
	Label, Scope, Days string
	Apps               []string
}

func accountPage(v *request) error {
	return v.showAccount(http.StatusOK, tokenForm{Scope: "read", Days: "90"}, nil)
}

func (v *request) showAccount(status int, draft tokenForm, m mistakes) error {
	a := account{User: v.access, Must: v.access.MustChangePassword, Proxied: v.proxied, MinLength: auth.MinPassword, Draft: draft, Mistakes: m}
	if a.Must {
		return v.show(status, "account", "Choose a password", a)
	}
	var err error
	if a.Sessions, err = v.Service.Sessions(v.r.Context(), v.actor); err != nil {
		return err
	}
	tokens, err := v.Service.Tokens(v.r.Context(), v.actor)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		a.Tokens = append(a.Tokens, token{t, t.RevokedAt.IsZero() && v.Clock().Before(t.Expires)})
	}
	apps, err := v.Service.Apps(v.r.Context(), v.actor)
	if err != nil {
		return err
	}
	for _, app := range apps {
		a.Apps = append(a.Apps, appChoice{Name: app.Name, Checked: slices.Contains(draft.Apps, app.Name)})
	}
	return v.show(status, "account", "Your account", a)
}

func changePassword(v *request) error {
	if v.proxied {
		return errNoPassword
	}
	m := mistakes{}
	if v.field("password") != v.field("repeat") {
		m.add("repeat", "it is not the same as the new password")
	}
	if err := auth.CheckPassword(v.actor.User(), v.field("password")); err != nil {
		m.add("password", err.Error())
	}
	draft := tokenForm{Scope: "read", Days: "90"}
	if len(m) > 0 {
		return v.showAccount(http.StatusUnprocessableEntity, draft, m)
	}
	session, err := v.Service.ChangePassword(v.r.Context(), v.actor, v.field("old"), v.field("password"))
	if errors.Is(err, service.ErrCredentials) {
		return v.showAccount(http.StatusUnprocessableEntity, draft, mistakes{"old": {"it is not your password"}})
	}
	if m := mistakesOf(err); m != nil {
		return v.showAccount(http.StatusUnprocessableEntity, draft, m)
	}
	if err != nil {
		return err
	}
	v.setSession(session)
	return v.seeOther("/account", "password")
}

func endSession(v *request) error {
	if err := v.Service.RevokeSession(v.r.Context(), v.actor, v.field("id")); err != nil {
		return err
	}
	return v.seeOther("/account", "ended")
}

func createToken(v *request) error {
	draft := tokenForm{Label: v.field("label"), Scope: v.field("scope"), Days: v.field("days"), Apps: v.r.PostForm["apps"]}
	days, err := strconv.ParseInt(draft.Days, 10, 32)
	if err != nil {
		days = math.MaxInt16 // the service refuses it, with all other mistakes
	}
	_, secret, err := v.Service.CreateToken(v.r.Context(), v.actor, service.TokenDraft{
		Label: draft.Label, Scope: service.Scope(draft.Scope), Apps: draft.Apps, Life: time.Duration(min(max(days, 0), math.MaxInt16)) * 24 * time.Hour,
	})
	if m := mistakesOf(err); m != nil {
		return v.showAccount(http.StatusUnprocessableEntity, draft, m)
	}
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "once", "A new token", once{Secret: secret, Back: "/account"})
}

func revokeToken(v *request) error {
	if err := v.Service.RevokeToken(v.r.Context(), v.actor, v.field("id")); err != nil {
		return err
	}
	return v.seeOther("/account", "revoked")
}
