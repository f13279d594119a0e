package fibermw

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/headgate/headgate/core"
)

// Request returns what the rules of a limiter see of c, for
// [limiter.Limiter.PeekRequest], [limiter.Limiter.TakeRequest] and
// [limiter.Limiter.ResetRequest]. It is valid until Fiber uses c for another
// request. It is nil if c is nil.
func Request(c *fiber.Ctx) core.Request {
	if c == nil {
		return nil
	}
	return request{c}
}

// request is what rules may know of a *fiber.Ctx. Its strings are copies of
// what fasthttp holds: a handler that changes the request would otherwise
// change the keys that units are given back to.
type request struct{ c *fiber.Ctx }

func (r request) Context() context.Context { return r.c.UserContext() }
func (r request) Route() string            { return r.c.Route().Path }

// Method needs no copy for the methods that there are.
func (r request) Method() string {
	m := r.c.Method()
	for _, known := range fiber.DefaultMethods {
		if m == known {
			return known
		}
	}
	return strings.Clone(m)
}

// RemoteAddr is written as net/http writes it.
func (r request) RemoteAddr() string {
	if peer := r.RemoteAddrPort(); peer.IsValid() {
		return peer.String()
	}
	return r.c.Context().RemoteAddr().String()
}

// RemoteAddrPort is the peer of a TCP connection. It spares package keyfuncs
// the text of it.
func (r request) RemoteAddrPort() netip.AddrPort {
	tcp, ok := r.c.Context().RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	peer := tcp.AddrPort()
	return netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
}

func (r request) Header(name string) []string {
	if name == "Host" { // that of the request line wins over the header
		return []string{string(r.c.Context().URI().Host())}
	}
	lines := r.c.Context().Request.Header.PeekAll(name)
	if len(lines) == 0 {
		return nil
	}
	copies := make([]string, len(lines))
	for i, line := range lines {
		copies[i] = string(line)
	}
	return copies
}

// Key makes a key function of one that knows *fiber.Ctx, whose strings it need
// not copy. Requests of other frameworks share the key "".
func Key(f func(*fiber.Ctx) (key string, ok bool)) core.KeyFunc {
	return func(r core.Request) (string, bool) {
		if r, ok := r.(request); ok {
			key, ok := f(r.c)
			return strings.Clone(key), ok
		}
		return "", true
	}
}
