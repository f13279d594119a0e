package web

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/headgate/headgate/cmd/headgate-console/internal/oidc"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// flowLife is how many seconds a log-in at the provider may take.
const flowLife = 600

// flow is the content of the cookie that keeps a log-in until the provider sends the browser
// back. Another browser has no such cookie, and cannot end the log-in.
type flow struct {
	oidc.Flow
	Next string `json:"next"`
}

func (v *request) flowCookie() string { return v.Cookie() + "-oidc" }

// oidcBegin sends the browser to the provider.
func oidcBegin(v *request) error {
	if v.Provider == nil {
		return service.ErrNotFound
	}

	f, address, err := v.Provider.Begin(v.r.Context())
	if err != nil {
		return v.oidcFailed(err)
	}

	value, err := json.Marshal(flow{f, local(v.query("next"))})
	if err != nil {
		return err
	}

	v.setCookie(&http.Cookie{
		Name: v.flowCookie(), Value: base64.RawURLEncoding.EncodeToString(value), MaxAge: flowLife,
	})

	http.Redirect(v.w, v.r, address, http.StatusSeeOther)
	return nil
}

// oidcEnd starts a session if the provider has authenticated the user.
func oidcEnd(v *request) error {
	if v.Provider == nil {
		return service.ErrNotFound
	}

	var f flow
	if c, err := v.r.Cookie(v.flowCookie()); err == nil {
		if data, err := base64.RawURLEncoding.DecodeString(c.Value); err == nil {
			_ = json.Unmarshal(data, &f) // without it there is no state that matches
		}
	}

	v.setCookie(&http.Cookie{Name: v.flowCookie(), MaxAge: -1}) // a log-in ends once

	who, err := v.Provider.Finish(v.r.Context(), f.Flow, v.r.URL.Query())
	if err != nil {
		return v.oidcFailed(err)
	}

	// A user with a password is asked for it at the first log-in by the provider: own is the user
	// of the session that the browser has.
	own, err := v.Service.Authenticate(v.r.Context(), v.sessionToken(), v.meta())
	if err != nil && !errors.Is(err, service.ErrNotLoggedIn) {
		return err
	}

	session, err := v.Service.LoginByProvider(v.r.Context(), who, own, v.meta())
	if err != nil {
		return v.oidcFailed(err)
	}

	v.setSession(session)
	return v.seeOther(local(f.Next), "")
}

// oidcFailed shows the page for logging in again.
func (v *request) oidcFailed(err error) error {
	form, status := loginForm{Provider: true}, http.StatusForbidden

	switch {
	case errors.Is(err, oidc.ErrAway):
		form.Mistake = "The provider does not answer. Please try again in a moment."
		status = http.StatusServiceUnavailable
	case errors.Is(err, oidc.ErrGroup):
		form.Mistake = "You are in none of the groups that may sign in."
	case errors.Is(err, service.ErrOwnPassword):
		form.Mistake = "The user of your name has a password. Sign in with it first, " +
			"and then at your organization, on the page of your account."
	case errors.Is(err, service.ErrNotLoggedIn):
		form.Mistake = "The console has no user of your name, or has disabled the user. " +
			"An administrator can change that."
	case errors.Is(err, oidc.ErrRefused):
		form.Mistake = "The provider has not signed you in. Please try again."
	default:
		return err
	}

	v.Logger.WarnContext(v.r.Context(), "a log-in at the provider failed", "request_id", v.requestID(), "error", err)
	if !errors.Is(err, oidc.ErrAway) && !errors.Is(err, service.ErrNotLoggedIn) { // the service has noted that
		v.Service.RefuseProvider(v.r.Context(), err, v.meta())
	}

	return v.show(status, "login", "Sign in", form)
}
