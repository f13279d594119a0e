package web

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// loginForm is the page for logging in.
type loginForm struct {
	Name, Next, Mistake string

	Provider bool // people may log in at a provider of OpenID Connect
}

func loginPage(v *request) error {
	if _, named := v.Proxies.User(v.r); named {
		return v.seeOther(local(v.query("next")), "")
	}
	return v.show(http.StatusOK, "login", "Sign in", loginForm{Next: v.query("next"), Provider: v.Provider != nil})
}

func login(v *request) error {
	if _, named := v.Proxies.User(v.r); named {
		return v.seeOther(local(v.field("next")), "") // the proxy replaces the session
	}

	form := loginForm{Name: v.field("name"), Next: v.field("next"), Provider: v.Provider != nil}
	session, err := v.Service.Login(v.r.Context(), form.Name, v.field("password"), v.meta())

	// What a person can do something about is shown in the form, with the name that was typed.
	var limited *service.LimitedError
	switch {
	case errors.Is(err, service.ErrCredentials):
		form.Mistake = "The name or the password is wrong."
		return v.show(http.StatusUnauthorized, "login", "Sign in", form)
	case errors.As(err, &limited):
		f := v.explain(err)
		form.Mistake = f.Text
		return v.show(f.Status, "login", "Sign in", form)
	case errors.Is(err, service.ErrUnavailable):
		form.Mistake = away
		return v.show(http.StatusServiceUnavailable, "login", "Sign in", form)
	case err != nil:
		return err
	}

	// The password was right, and a code is asked for next. The cookie is no session yet.
	if session.Pending != "" {
		v.setCookie(&http.Cookie{Name: v.pendingCookie(), Value: session.Pending, Expires: session.Expires})
		return v.seeOther("/login/code?next="+url.QueryEscape(local(form.Next)), "")
	}

	return v.enter(session, form.Next)
}

// enter begins to use a session, on the page next.
func (v *request) enter(session service.Session, next string) error {
	v.setSession(session)
	if session.MustChangePassword {
		return v.seeOther("/account", "")
	}
	if session.Recovered {
		return v.seeOther(factorPath, "recovered")
	}
	return v.seeOther(local(next), "")
}

// pendingCookie returns the name of the cookie of a log-in that waits for its code.
func (v *request) pendingCookie() string { return v.Cookie() + "-login" }

// codeForm is the page for the second step of a log-in.
type codeForm struct{ Next, Mistake string }

func codePage(v *request) error {
	if _, err := v.r.Cookie(v.pendingCookie()); err != nil {
		return v.seeOther("/login?next="+url.QueryEscape(local(v.query("next"))), "")
	}
	return v.show(http.StatusOK, "code", "Sign in", codeForm{Next: v.query("next")})
}

func loginCode(v *request) error {
	form := codeForm{Next: v.field("next")}
	var pending string
	if c, err := v.r.Cookie(v.pendingCookie()); err == nil {
		pending = c.Value
	}

	session, err := v.Service.LoginCode(v.r.Context(), pending, v.field("code"), v.meta())
	var limited *service.LimitedError
	switch {
	case errors.Is(err, service.ErrNotLoggedIn):
		v.setCookie(&http.Cookie{Name: v.pendingCookie(), MaxAge: -1})
		return v.show(http.StatusUnauthorized, "login", "Sign in", loginForm{
			Next: form.Next, Provider: v.Provider != nil,
			Mistake: "The sign-in took too long, or has ended. Please begin again.",
		})
	case errors.Is(err, service.ErrCredentials):
		form.Mistake = "The code is wrong, or was used before. Wait for the next one."
		return v.show(http.StatusUnauthorized, "code", "Sign in", form)
	case errors.As(err, &limited):
		f := v.explain(err)
		form.Mistake = f.Text + " A recovery code, or a browser in which you have signed in before, may work now."
		return v.show(f.Status, "code", "Sign in", form)
	case errors.Is(err, service.ErrUnavailable):
		form.Mistake = away
		return v.show(http.StatusServiceUnavailable, "code", "Sign in", form)
	case err != nil:
		return err
	}
	v.setCookie(&http.Cookie{Name: v.pendingCookie(), MaxAge: -1})
	return v.enter(session, form.Next)
}

// away is what the pages for logging in say of a database that does not answer.
const away = "The database does not answer. Please try again in a moment."

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

func logout(v *request) error {
	if v.proxied {
		return errSignOut
	}
	if err := v.Service.Logout(v.r.Context(), v.actor); err != nil {
		return err
	}
	v.dropSession()
	return v.seeOther("/login", "out")
}
