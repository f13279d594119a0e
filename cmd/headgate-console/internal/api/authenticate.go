// This file finds the actor of a request.
//
// A program sends a token of the console, as "Authorization: Bearer hgt_...". A
// page sends the cookie of its session. A change with a cookie has to come from a
// page of the same origin. Tokens need no such protection, because no browser sends
// them by itself. If a trusted proxy names the user, its header replaces the
// cookie, under the same protection. An address that has sent too many wrong tokens
// gets a 429 for a while.

package api

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// An address may send this many wrong tokens in this time, and this many addresses are
// remembered. Tokens cannot be guessed: the limit keeps attempts from overloading the
// database.
const (
	wrongTokens  = 60
	wrongPer     = time.Minute
	attemptsKeys = 1 << 16
)

// newWrongTokens returns the limit of wrong tokens, which no managed policy changes.
func newWrongTokens(clock func() time.Time) (*limiter.Limiter, error) {
	store, err := memstore.New(memstore.Options{
		MaxKeys: attemptsKeys, Clock: func() int64 { return clock().UnixMicro() },
	})
	if err != nil {
		return nil, err
	}
	return limiter.New(limiter.Config{Store: store, Rules: []limiter.Rule{
		{Name: "wrong-tokens", Limit: core.Limit{Quota: wrongTokens, Period: wrongPer}, Key: keyfuncs.RemoteIP},
	}})
}

// authenticate returns the actor of the request. A token in Authorization takes
// precedence over the user that the proxy names, and that over the cookie.
func (c *call) authenticate() (service.Actor, error) {
	// An address that guesses is refused before anything is looked up in the database.
	address := c.o.Proxies.Address(c.r)
	network, _ := keyfuncs.RemoteIP(&sample{address: address})
	if d, err := c.wrong.Peek(c.ctx(), network); err == nil && len(d) > 0 && !d[0].Decision.Allowed {
		return service.Actor{}, &service.LimitedError{RetryAfter: d[0].Decision.RetryAfter}
	}

	meta := service.Meta{Address: address, Agent: c.r.UserAgent(), RequestID: c.id()}
	if name, named := c.o.Proxies.User(c.r); named && len(c.r.Header.Values("Authorization")) == 0 {
		return c.proxied(name, meta)
	}

	// An expired token was a right one once, so it is no guess. Neither is a request without
	// credentials.
	actor, err := c.identify(meta)
	guessed := errors.Is(err, service.ErrNotLoggedIn) && !errors.Is(err, service.ErrTokenExpired)
	if guessed && presents(c.r, c.o.Cookie) {
		c.wrong.Take(c.ctx(), network, 1) // memory never fails to decide
	}

	return actor, err
}

// proxied returns the user that the proxy names. It checks the origin, because a
// browser sends the credentials for the proxy with requests of other sites too, like
// cookies.
func (c *call) proxied(name string, meta service.Meta) (service.Actor, error) {
	if err := c.sameOrigin(); err != nil {
		return service.Actor{}, err
	}
	return c.o.Service.AuthenticateByProxy(c.ctx(), name, meta)
}

func (c *call) identify(meta service.Meta) (service.Actor, error) {
	if lines := c.r.Header.Values("Authorization"); len(lines) > 0 {
		secret, ok := bearer(lines)
		if !ok {
			return service.Actor{}, service.ErrNotLoggedIn
		}
		return c.o.Service.AuthenticateToken(c.ctx(), secret, meta)
	}

	// A browser sends a cookie with requests of other sites, too, so the origin is checked before.
	cookie := sessionCookie(c.r, c.o.Cookie)
	if cookie == "" {
		return service.Actor{}, service.ErrNotLoggedIn
	}
	if err := c.sameOrigin(); err != nil {
		return service.Actor{}, err
	}
	return c.o.Service.Authenticate(c.ctx(), cookie, meta)
}

// sameOrigin refuses a change that a page of another origin requests.
func (c *call) sameOrigin() error {
	if err := c.protection.Check(c.r); err != nil {
		return newProblem(http.StatusForbidden, "cross-origin", "the request comes from a page of another origin")
	}
	return nil
}

// bearer returns the token, if Authorization has one line of that form.
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

// presents reports whether the request carries credentials, valid or not.
func presents(r *http.Request, cookie string) bool {
	return len(r.Header.Values("Authorization")) > 0 || sessionCookie(r, cookie) != ""
}
