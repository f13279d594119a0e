package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/headgate/headgate/console/internal/service"
)

// authenticate tells who asks. What stands in Authorization counts, and the cookie
// only where there is no such header.
func (c *call) authenticate() (service.Actor, error) {
	if retryAfter := c.attempts.blocked(c.r); retryAfter > 0 {
		return service.Actor{}, &service.LimitedError{RetryAfter: retryAfter}
	}
	actor, err := c.who()
	if errors.Is(err, service.ErrNotLoggedIn) && presents(c.r, c.o.Cookie) {
		c.attempts.failed(c.r)
	}
	return actor, err
}

func (c *call) who() (service.Actor, error) {
	meta := service.Meta{Address: c.r.RemoteAddr, Agent: c.r.UserAgent(), RequestID: c.id()}
	if lines := c.r.Header.Values("Authorization"); len(lines) > 0 {
		secret, ok := bearer(lines)
		if !ok {
			return service.Actor{}, service.ErrNotLoggedIn
		}
		return c.o.Service.AuthenticateToken(c.ctx(), secret, meta)
	}
	cookie := sessionCookie(c.r, c.o.Cookie)
	if cookie == "" {
		return service.Actor{}, service.ErrNotLoggedIn
	}
	if err := c.protection.Check(c.r); err != nil {
		return service.Actor{}, &problem{Status: http.StatusForbidden, Code: "cross-origin", Detail: "the request comes from a page of another origin"}
	}
	return c.o.Service.Authenticate(c.ctx(), cookie, meta)
}

// bearer is the token of the only line of Authorization.
func bearer(lines []string) (secret string, ok bool) {
	scheme, secret, ok := strings.Cut(lines[0], " ")
	secret = strings.TrimSpace(secret)
	return secret, ok && len(lines) == 1 && strings.EqualFold(scheme, "Bearer") && secret != ""
}

func sessionCookie(r *http.Request, name string) string {
	if name == "" {
		return ""
	}
	cookie, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// presents tells whether the request says who asks, rightly or not.
func presents(r *http.Request, cookie string) bool {
	return len(r.Header.Values("Authorization")) > 0 || sessionCookie(r, cookie) != ""
}
