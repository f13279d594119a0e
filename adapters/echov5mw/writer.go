package echov5mw

import (
	"bufio"
	"net"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/limiter"
)

// writer records the status that is written through it, and that a handler has taken over
// the connection. It then keeps the leases until the connection is closed.
// [echo.UnwrapResponse] and [http.ResponseController] reach the writer underneath through
// Unwrap.
type writer struct {
	http.ResponseWriter
	admission *limiter.Admission
	status    int // 0 if no handler has called WriteHeader
	hijacked  bool
}

// wrap makes c answer through a new writer.
func wrap(c *echo.Context, a *limiter.Admission) *writer {
	w := &writer{ResponseWriter: c.Response(), admission: a}
	c.SetResponse(w)
	return w
}

// unwrap makes c answer as it did before, unless a handler has set another writer.
func (w *writer) unwrap(c *echo.Context) {
	if c.Response() == w {
		c.SetResponse(w.ResponseWriter)
	}
}

// Unwrap returns the writer underneath.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader records the status of the answer. Below a GET handler that answers HEAD,
// the echo.Response is committed without the status, which follows later.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 && !committed(w.ResponseWriter) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Flush exists for code that asserts [http.Flusher] on the writer of an echo.Context.
func (w *writer) Flush() { _ = w.FlushError() }

// FlushError sends buffered data to the client.
func (w *writer) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack takes over the connection. The leases are held until it is closed.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return conn, rw, err
	}
	w.hijacked = true
	return w.admission.HoldConn(conn), rw, nil
}

// answered reports whether a handler has sent a status or taken over the connection.
func (w *writer) answered() bool { return w.hijacked || w.status != 0 || committed(w.ResponseWriter) }

// committed reports whether the status has been sent.
func committed(w http.ResponseWriter) bool {
	r, _ := echo.UnwrapResponse(w)
	return r != nil && r.Committed
}
