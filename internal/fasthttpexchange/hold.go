package fasthttpexchange

import (
	"net"
	"runtime"

	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/limiter"
)

// Outlives reports whether the answer is still sent after the handlers have returned.
func Outlives(ctx *fasthttp.RequestCtx) bool { return ctx.Response.IsBodyStream() || ctx.Hijacked() }

// hold releases leases when it is closed.
type hold struct {
	lease   net.Conn
	dropped runtime.Cleanup
}

// HoldUntilSent makes fasthttp release the leases of an admission at the end of the request.
// fasthttp closes the values of a request after its body stream has been sent, and after the
// handler of its hijacked connection has returned. If fasthttp drops the request
// instead, the garbage collector releases the leases.
func HoldUntilSent(ctx *fasthttp.RequestCtx, a *limiter.Admission) {
	h := &hold{lease: a.HoldConn(unclosed{ctx.Conn()})}
	h.dropped = runtime.AddCleanup(h, func(lease net.Conn) { _ = lease.Close() }, h.lease)
	ctx.SetUserValue(h, h)
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
