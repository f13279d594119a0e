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

	// What a person can do something about is shown in the form, with the name that was typed.
	var limited *service.LimitedError
	switch {
	case errors.Is(err, service.ErrCredentials):
		form.Mistake = "The name or the password is wrong."
		return r.show(http.StatusUnauthorized, "login", "Sign in", form)
	case errors.As(err, &limited):
		f := r.explain(err)
		form.Mistake = f.Text
		return r.show(f.Status, "login", "Sign in", form)
	case errors.Is(err, service.ErrUnavailable):
		form.Mistake = awayText(err)
		return r.show(http.StatusServiceUnavailable, "login", "Sign in", form)
	case err != nil:
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
	var pending string
	if c, err := r.req.Cookie(r.pendingCookie()); err == nil {
		pending = c.Value
	}

	session, err := r.Service.LoginCode(r.req.Context(), pending, r.field("code"), r.logInMeta())
	var limited *service.LimitedError
	switch {
	case errors.Is(err, service.ErrNotLoggedIn):
		r.setCookie(&http.Cookie{Name: r.pendingCookie(), MaxAge: -1})
		return r.show(http.StatusUnauthorized, "login", "Sign in", loginForm{
			Next: form.Next, Provider: r.Provider != nil,
			Mistake: "The sign-in took too long, or has ended. Please begin again.",
		})
	case errors.Is(err, service.ErrCredentials):
		form.Mistake = "The code is wrong, or was used before. Wait for the next one."
		return r.show(http.StatusUnauthorized, "code", "Sign in", form)
	case errors.As(err, &limited):
		f := r.explain(err)
		form.Mistake = f.Text + " A recovery code, or a browser in which you have signed in before, may work now."
		return r.show(f.Status, "code", "Sign in", form)
	case errors.Is(err, service.ErrUnavailable):
		form.Mistake = awayText(err)
		return r.show(http.StatusServiceUnavailable, "code", "Sign in", form)
	case err != nil:
		return err
	}
	r.setCookie(&http.Cookie{Name: r.pendingCookie(), MaxAge: -1})
	return r.enter(session, form.Next)
}

// awayText is what the pages for logging in say of a database that is not available.
func awayText(err error) string {
	if errors.Is(err, service.ErrFull) {
		return fullTitle + ", so the console cannot sign anyone in. Make room where the console has its database."
	}
	return "The database does not answer. Please try again in a moment."
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
	r.dropSession()
	return r.seeOther("/login", "out")
}
