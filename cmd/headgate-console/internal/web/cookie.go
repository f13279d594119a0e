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

// sessionToken returns the token that came with a request, or "".
func (v *request) sessionToken() string {
	c, err := v.r.Cookie(v.Cookie())
	if err != nil {
		return ""
	}
	return c.Value
}

func (v *request) setSession(s service.Session) {
	v.setCookie(&http.Cookie{Name: v.Cookie(), Value: s.Token, Expires: s.Expires})
	if s.Device != "" {
		v.setCookie(&http.Cookie{Name: v.deviceCookie(), Value: s.Device, Expires: v.Clock().Add(service.DeviceLife)})
	}
}

func (v *request) dropSession() { v.setCookie(&http.Cookie{Name: v.Cookie(), MaxAge: -1}) }

// deviceCookie returns the name of the cookie of [service.Session.Device].
func (v *request) deviceCookie() string { return v.Cookie() + "-device" }

// device returns the device that came with a request, or "".
func (v *request) device() string {
	c, err := v.r.Cookie(v.deviceCookie())
	if err != nil {
		return ""
	}
	return c.Value
}

func (v *request) setCookie(c *http.Cookie) {
	c.Path, c.HttpOnly, c.SameSite = "/", true, http.SameSiteLaxMode
	c.Secure = v.Secure
	http.SetCookie(v.w, c)
}
