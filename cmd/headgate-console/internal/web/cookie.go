package web

import (
	"net/http"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// Cookie returns the name of the session's cookie. With TLS it has the prefix that
// keeps other hosts of the domain, and plain HTTP, from setting it.
func (o Options) Cookie() string {
	if o.Secure {
		return "__Host-headgate"
	}
	return "headgate"
}

// cookie returns the value of a cookie that came with a request, or "".
func (r *request) cookie(name string) string {
	c, err := r.req.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

func (r *request) dropCookie(name string) { r.setCookie(&http.Cookie{Name: name, MaxAge: -1}) }

// sessionToken returns the token that came with a request, or "".
func (r *request) sessionToken() string { return r.cookie(r.Cookie()) }
func (r *request) setSession(s service.Session) {
	r.setCookie(&http.Cookie{Name: r.Cookie(), Value: s.Token, Expires: s.Expires})
	if s.Device != "" {
		r.setCookie(&http.Cookie{Name: r.deviceCookie(), Value: s.Device, Expires: r.Clock().Add(service.DeviceLife)})
	}
}

// deviceCookie returns the name of the cookie of [service.Session.Device].
func (r *request) deviceCookie() string { return r.Cookie() + "-device" }

func (r *request) setCookie(c *http.Cookie) {
	c.Path, c.HttpOnly, c.SameSite = "/", true, http.SameSiteLaxMode
	c.Secure = r.Secure
	http.SetCookie(r.w, c)
}
