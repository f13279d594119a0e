package fiberv3mw

import (
	"net"
	"runtime"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate/limiter"
)

// outlives reports whether the answer is still sent after the handlers have returned.
func outlives(c fiber.Ctx) bool {
	ctx := c.RequestCtx()
	return ctx.LastTimeoutErrorResponse() == nil && (ctx.Response.IsBodyStream() || ctx.Hijacked())
}

// hold releases leases when it is closed.
type hold struct {
	lease   net.Conn
	dropped runtime.Cleanup
}

// holdUntilSent makes fasthttp release the leases at the end of the request. fasthttp
// closes the values of a request after its body stream has been sent, and after the
// handler of its hijacked connection has returned. If fasthttp drops the request
// instead, the garbage collector releases the leases.
func holdUntilSent(c fiber.Ctx, a *limiter.Admission) {
	h := &hold{lease: a.HoldConn(unclosed{c.RequestCtx().Conn()})}
	h.dropped = runtime.AddCleanup(h, func(lease net.Conn) { _ = lease.Close() }, h.lease)
	c.RequestCtx().SetUserValue(h, h)
}

// Close releases the leases.
func (h *hold) Close() error {
	h.dropped.Stop()
	return h.lease.Close()
}

// unclosed is a connection that only fasthttp may close.
type unclosed struct{ net.Conn }

// Close does nothing.
func (unclosed) Close() error { return nil }
