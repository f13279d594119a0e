package fibermw

import (
	"context"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/fasthttpexchange"
)

// Request returns the view that the rules of a limiter have of c, for
// [limiter.Limiter.PeekRequest], [limiter.Limiter.TakeRequest] and
// [limiter.Limiter.ResetRequest]. It is valid until Fiber uses c for another
// request. It is nil if c is nil.
func Request(c *fiber.Ctx) core.Request {
	if c == nil {
		return nil
	}
	return request{c}
}

// request is the view that rules have of a *fiber.Ctx. Its strings are copies of
// fasthttp's. A handler that changes the request would otherwise change the keys to
// which units are refunded.
type request struct{ c *fiber.Ctx }

func (r request) Context() context.Context {
	return fasthttpexchange.Context(r.c.Context(), r.c.UserContext)
}
func (r request) Route() string { return r.c.Route().Path }

// RouteMayBePrefix reports that Route is a prefix in middleware of Use and Group, for
// package policy.
func (r request) RouteMayBePrefix() bool { return true }

// Method avoids the copy for the methods that Fiber knows by default.
func (r request) Method() string {
	m := r.c.Method()
	for _, known := range fiber.DefaultMethods {
		if m == known {
			return known
		}
	}
	return strings.Clone(m)
}

// Path returns the path that Fiber routes by.
func (r request) Path() string {
	config := r.c.App().Config()
	return fasthttpexchange.Path(r.c.Path(), config.StrictRouting, config.CaseSensitive)
}

// SentPath returns the path that the client sent if a handler has set another since, for
// package policy.
func (r request) SentPath() string { return fasthttpexchange.SentPath(r.c.Context(), r.c.Path()) }

// RawQuery returns the query as the client encoded it, for package policy.
func (r request) RawQuery() string { return fasthttpexchange.RawQuery(r.c.Context()) }

// RemoteAddr returns the peer in the form that net/http gives it.
func (r request) RemoteAddr() string { return fasthttpexchange.RemoteAddr(r.c.Context()) }

// RemoteAddrPort returns the peer of a TCP connection, so that package keyfuncs need
// not parse its text.
func (r request) RemoteAddrPort() netip.AddrPort {
	return fasthttpexchange.RemoteAddrPort(r.c.Context())
}

func (r request) Header(name string) []string {
	if name == "Host" {
		return fasthttpexchange.Hosts(r.c.Context(), r.c.Hostname())
	}
	return fasthttpexchange.Header(r.c.Context(), name)
}

// ReadAhead returns the body, for package policy.
func (r request) ReadAhead(max int64) ([]byte, bool) {
	return fasthttpexchange.ReadAhead(r.c.Context(), max)
}

// Key returns a key function that calls f with the *fiber.Ctx of the request. f need
// not copy strings of the *fiber.Ctx. Requests of other frameworks share the key "".
func Key(f func(*fiber.Ctx) (key string, ok bool)) core.KeyFunc {
	return func(r core.Request) (string, bool) {
		if r, ok := r.(request); ok {
			key, ok := f(r.c)
			return strings.Clone(key), ok
		}
		return "", true
	}
}
