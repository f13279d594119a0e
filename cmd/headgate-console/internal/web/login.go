package web

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/oidc"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// loginForm is the page for logging in.
type loginForm struct {
	Name, Next, Mistake string

	Provider bool // people may log in at a provider of OpenID Connect
}

func loginPage(r *request) error {
	if _, named := r.Proxies.User(r.req); named {
		return r.seeOther(local(r.query("next")), "")
	}
	return r.show(http.StatusOK, "login", "Sign in", loginForm{Next: r.query("next"), Provider: r.Provider != nil})
}

func login(r *request) error {
	if _, named := r.Proxies.User(r.req); named {
		return r.seeOther(local(r.field("next")), "") // the proxy replaces the session
	}

	form := loginForm{Name: r.field("name"), Next: r.field("next"), Provider: r.Provider != nil}
	session, err := r.Service.Login(r.req.Context(), form.Name, r.field("password"), r.logInMeta())

	if status, text := r.logInFailure(err, "password"); status != 0 {
		form.Mistake = text
		return r.show(status, "login", "Sign in", form)
	}
	if err != nil {
		return err
	}

	// The password was right, and a code is asked for next. The cookie is no session yet.
	if session.Pending != "" {
		r.setCookie(&http.Cookie{Name: r.pendingCookie(), Value: session.Pending, Expires: session.Expires})
		return r.seeOther("/login/code?next="+url.QueryEscape(local(form.Next)), "")
	}

	return r.enter(session, form.Next)
}

// enter begins to use a session, on the page next.
func (r *request) enter(session service.Session, next string) error {
	r.setSession(session)
	if session.MustChangePassword {
		return r.seeOther("/account", "")
	}
	if session.Recovered {
		return r.seeOther(factorPath, "recovered")
	}
	return r.seeOther(local(next), "")
}

// pendingCookie returns the name of the cookie of a log-in that waits for its code.
func (r *request) pendingCookie() string { return r.Cookie() + "-login" }

// codeForm is the page for the second step of a log-in.
type codeForm struct{ Next, Mistake string }

func codePage(r *request) error {
	if _, err := r.req.Cookie(r.pendingCookie()); err != nil {
		return r.seeOther("/login?next="+url.QueryEscape(local(r.query("next"))), "")
	}
	return r.show(http.StatusOK, "code", "Sign in", codeForm{Next: r.query("next")})
}

func loginCode(r *request) error {
	form := codeForm{Next: r.field("next")}
	session, err := r.Service.LoginCode(r.req.Context(), r.cookie(r.pendingCookie()), r.field("code"), r.logInMeta())
	if errors.Is(err, service.ErrNotLoggedIn) {
		r.dropCookie(r.pendingCookie())
		ended := vocabulary.Signin["ended"]
		return r.show(ended.Status, "login", "Sign in",
			loginForm{Next: form.Next, Provider: r.Provider != nil, Mistake: ended.Text})
	}

	if status, text := r.logInFailure(err, "code"); status != 0 {
		form.Mistake = text
		if status == http.StatusTooManyRequests {
			form.Mistake += " A recovery code, or a browser in which you have signed in before, may work now."
		}
		return r.show(status, "code", "Sign in", form)
	}
	if err != nil {
		return err
	}

	r.dropCookie(r.pendingCookie())
	return r.enter(session, form.Next)
}

// logInFailure returns the status of the form of a log-in, and what it says of an error that a
// person can do something about; wrong names what is said of a wrong password or code. The status
// is 0 for every other error, and for none.
func (r *request) logInFailure(err error, wrong string) (status int, text string) {
	var limited *service.LimitedError
	if errors.As(err, &limited) {
		f := r.explain(err)
		return f.Status, f.Text
	}
	known := names{{service.ErrCredentials, wrong}, {service.ErrFull, "full"}, {service.ErrUnavailable, "database"}}
	said := vocabulary.Signin[known.of(err)]
	return said.Status, said.Text
}

// maxNext is how many bytes the address of a page to show after the log-in may have. A cookie
// keeps it while people are at a provider, and browsers drop cookies of more than 4 KiB.
const maxNext = 2048

// local returns the page to show after the log-in, which is always one of this
// site.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || len(next) > maxNext || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, "/") ||
		strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") {
		return "/"
	}
	return u.RequestURI()
}

func logout(r *request) error {
	if r.proxied {
		return errSignOut
	}
	if err := r.Service.Logout(r.req.Context(), r.actor); err != nil {
		return err
	}
	r.dropCookie(r.Cookie())
	return r.seeOther("/login", "out")
}

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

// providerFailures are the errors of a log-in at the provider that a person can do something about.
var providerFailures = names{
	{oidc.ErrAway, "provider away"}, {oidc.ErrGroup, "group"}, {service.ErrOwnPassword, "own password"},
	{service.ErrNotLoggedIn, "no user"}, {oidc.ErrRefused, "refused"},
}

// oidcFailed shows the page for logging in again.
func (r *request) oidcFailed(err error) error {
	name := providerFailures.of(err)
	if name == "" {
		return err
	}

	r.Logger.WarnContext(r.req.Context(), "a log-in at the provider failed", "request_id", r.requestID(), "error", err)
	if !errors.Is(err, oidc.ErrAway) && !errors.Is(err, service.ErrNotLoggedIn) { // the service has noted that
		r.Service.RefuseProvider(r.req.Context(), err, r.meta())
	}

	said := vocabulary.Signin[name]
	return r.show(said.Status, "login", "Sign in", loginForm{Provider: true, Mistake: said.Text})
}
