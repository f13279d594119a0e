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

	var status int
	if status, form.Mistake = r.logInFailure(err, "The name or the password is wrong.", ""); status != 0 {
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
		return r.show(http.StatusUnauthorized, "login", "Sign in", loginForm{
			Next: form.Next, Provider: r.Provider != nil,
			Mistake: "The sign-in took too long, or has ended. Please begin again.",
		})
	}

	var status int
	status, form.Mistake = r.logInFailure(err, "The code is wrong, or was used before. Wait for the next one.",
		" A recovery code, or a browser in which you have signed in before, may work now.")
	if status != 0 {
		return r.show(status, "code", "Sign in", form)
	}
	if err != nil {
		return err
	}

	r.dropCookie(r.pendingCookie())
	return r.enter(session, form.Next)
}

// logInFailure returns the status of the form of a log-in, and what it says of an error that a
// person can do something about. The status is 0 for every other error, and for none.
func (r *request) logInFailure(err error, wrong, limitedToo string) (status int, text string) {
	var limited *service.LimitedError
	switch {
	case errors.Is(err, service.ErrCredentials):
		return http.StatusUnauthorized, wrong
	case errors.As(err, &limited):
		f := r.explain(err)
		return f.Status, f.Text + limitedToo
	case errors.Is(err, service.ErrFull):
		return http.StatusServiceUnavailable, fullTitle + ", so the console cannot sign anyone in. " +
			"Make room where the console has its database."
	case errors.Is(err, service.ErrUnavailable):
		return http.StatusServiceUnavailable, "The database does not answer. Please try again in a moment."
	}
	return 0, ""
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
