package echomw

import (
	"bufio"
	"net"
	"net/http"

	"github.com/headgate/headgate/limiter"
)

// writer records that a handler has taken over the connection, and then keeps the
// leases until the connection is closed. [http.ResponseController], and therefore
// echo.Response, reaches other methods of the writer underneath through Unwrap.
type writer struct {
	http.ResponseWriter
	admission *limiter.Admission
	hijacked  bool
}

// Unwrap returns the writer underneath.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush exists for code that asserts [http.Flusher] on the writer of echo.Response.
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
