package web

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate/headgate/console/internal/service"
)

// loginForm is the page for logging in.
type loginForm struct {
	Name, Next, Mistake string
}

func home(v *request) error { return v.seeOther("/policies", "") }

func loginPage(v *request) error {
	if _, named := v.Proxies.User(v.r); named {
		return v.seeOther(local(v.query("next")), "")
	}
	return v.show(http.StatusOK, "login", "Sign in", loginForm{Next: v.query("next")})
}

func login(v *request) error {
	if _, named := v.Proxies.User(v.r); named {
		return v.seeOther(local(v.field("next")), "") // the proxy replaces the session
	}
	form := loginForm{Name: v.field("name"), Next: v.field("next")}
	session, err := v.Service.Login(v.r.Context(), form.Name, v.field("password"), v.meta())
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
		form.Mistake = "The database does not answer. Please try again in a moment."
		return v.show(http.StatusServiceUnavailable, "login", "Sign in", form)
	case err != nil:
		return err
	}
	v.setSession(session)
	if session.MustChangePassword {
		return v.seeOther("/account", "")
	}
	return v.seeOther(local(form.Next), "")
}

// local returns the page to show after the log-in, which is always one of this
// site.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, "/") ||
		strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") {
		return "/policies"
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
