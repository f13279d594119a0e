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

func (r *request) flowCookie() string { return r.Cookie() + "-oidc" }

// oidcBegin sends the browser to the provider.
func oidcBegin(r *request) error {
	if r.Provider == nil {
		return service.ErrNotFound
	}

	f, address, err := r.Provider.Begin(r.req.Context())
	if err != nil {
		return r.oidcFailed(err)
	}

	value, err := json.Marshal(flow{f, local(r.query("next"))})
	if err != nil {
		return err
	}

	r.setCookie(&http.Cookie{
		Name: r.flowCookie(), Value: base64.RawURLEncoding.EncodeToString(value), MaxAge: flowLife,
	})

	http.Redirect(r.w, r.req, address, http.StatusSeeOther)
	return nil
}

// oidcEnd starts a session if the provider has authenticated the user.
func oidcEnd(r *request) error {
	if r.Provider == nil {
		return service.ErrNotFound
	}

	var f flow
	if data, err := base64.RawURLEncoding.DecodeString(r.cookie(r.flowCookie())); err == nil {
		_ = json.Unmarshal(data, &f) // without it there is no state that matches
	}
	r.dropCookie(r.flowCookie()) // a log-in ends once
	who, err := r.Provider.Finish(r.req.Context(), f.Flow, r.req.URL.Query())
	if err != nil {
		return r.oidcFailed(err)
	}

	// A user with a password is asked for it at the first log-in by the provider: own is the user
	// of the session that the browser has.
	own, err := r.Service.Authenticate(r.req.Context(), r.sessionToken(), r.meta())
	if err != nil && !errors.Is(err, service.ErrNotLoggedIn) {
		return err
	}

	session, err := r.Service.LoginByProvider(r.req.Context(), who, own, r.logInMeta())
	if err != nil {
		return r.oidcFailed(err)
	}

	r.setSession(session)
	return r.seeOther(local(f.Next), "")
}

// oidcFailed shows the page for logging in again.
func (r *request) oidcFailed(err error) error {
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

	r.Logger.WarnContext(r.req.Context(), "a log-in at the provider failed", "request_id", r.requestID(), "error", err)
	if !errors.Is(err, oidc.ErrAway) && !errors.Is(err, service.ErrNotLoggedIn) { // the service has noted that
		r.Service.RefuseProvider(r.req.Context(), err, r.meta())
	}

	return r.show(status, "login", "Sign in", form)
}
