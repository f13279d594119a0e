package fiberv3mw

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate/core"
)

// Request returns the view that the rules of a limiter have of c, for
// [limiter.Limiter.PeekRequest], [limiter.Limiter.TakeRequest] and
// [limiter.Limiter.ResetRequest]. It is valid until Fiber uses c for another
// request. It is nil if c is nil.
func Request(c fiber.Ctx) core.Request {
	if c == nil {
		return nil
	}
	return &request{c}
}

// request is the view that rules have of a fiber.Ctx. Its strings are copies of
// fasthttp's. A handler that changes the request would otherwise change the keys to
// which units are refunded.
type request struct{ c fiber.Ctx }

func (r *request) Context() context.Context { return r.c.Context() }
func (r *request) Route() string            { return r.c.FullPath() }

// Method returns a string of Fiber's configuration, which does not change.
func (r *request) Method() string { return r.c.Method() }

// RouteMayBePrefix reports that Route is a prefix in middleware of Use and Group, for
// package policy.
func (r *request) RouteMayBePrefix() bool { return true }

// RemoteAddr returns the peer in the form that net/http gives it.
func (r *request) RemoteAddr() string {
	if peer := r.RemoteAddrPort(); peer.IsValid() {
		return peer.String()
	}
	return r.c.RequestCtx().RemoteAddr().String()
}

// RemoteAddrPort returns the peer of a TCP connection, so that package keyfuncs need
// not parse its text.
func (r *request) RemoteAddrPort() netip.AddrPort {
	tcp, ok := r.c.RequestCtx().RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	peer := tcp.AddrPort()
	return netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
}

func (r *request) Header(name string) []string {
	if name == "Host" {
		return r.hosts()
	}
	lines := r.c.RequestCtx().Request.Header.PeekAll(name)
	if len(lines) == 0 {
		return nil
	}
	copies := make([]string, len(lines))
	for i, line := range lines {
		copies[i] = string(line)
	}
	return copies
}

// hosts returns the host asked for; the host of the request line takes precedence. It
// also returns that of fiber.Ctx.Host if that is another, as it is if Fiber
// reads X-Forwarded-Host.
func (r *request) hosts() []string {
	asked, read := string(r.c.RequestCtx().URI().Host()), r.c.Host()
	if read == asked {
		return []string{asked}
	}
	return []string{asked, strings.Clone(read)}
}

// Key returns a key function that calls f with the fiber.Ctx of the request. f need
// not copy strings of the fiber.Ctx. Requests of other frameworks share the key "".
func Key(f func(fiber.Ctx) (key string, ok bool)) core.KeyFunc {
	return func(r core.Request) (string, bool) {
		if r, ok := r.(*request); ok {
			key, ok := f(r.c)
			return strings.Clone(key), ok
		}
		return "", true
	}
}
