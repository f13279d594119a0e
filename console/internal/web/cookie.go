package web

import (
	"net/http"

	"github.com/headgate/headgate/console/internal/service"
)

// Cookie returns the name of the session's cookie. With TLS it has the prefix that
// keeps other hosts of the domain, and plain HTTP, from setting it.
func (o Options) Cookie() string {
	if o.Secure {
		return "__Host-headgate"
	}
	return "headgate"
}

// sessionToken returns the token that came with a request, or "".
func (v *request) sessionToken() string {
	c, err := v.r.Cookie(v.Cookie())
	if err != nil {
		return ""
	}
	return c.Value
}

func (v *request) setSession(s service.Session) {
	v.setCookie(&http.Cookie{Value: s.Token, Expires: s.Expires})
}

func (v *request) dropSession() { v.setCookie(&http.Cookie{MaxAge: -1}) }

func (v *request) setCookie(c *http.Cookie) {
	c.Name, c.Path, c.HttpOnly, c.SameSite = v.Cookie(), "/", true, http.SameSiteLaxMode
	c.Secure = v.Secure
	http.SetCookie(v.w, c)
}
