package echomw

import (
	"bufio"
	"net"
	"net/http"

	"github.com/headgate/headgate/limiter"
)

// writer notes that a handler takes the connection over, and holds on to leases
// then. [http.ResponseController], and so echo.Response, finds what it does not
// do itself through Unwrap.
type writer struct {
	http.ResponseWriter
	admission *limiter.Admission
	hijacked  bool
}

// Unwrap returns the writer underneath.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is for code that asserts [http.Flusher] on the writer of echo.Response.
func (w *writer) Flush() { _ = w.FlushError() }

// FlushError sends what is buffered.
func (w *writer) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack takes the connection over, which keeps the leases until it is closed.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return conn, rw, err
	}
	w.hijacked = true
	return w.admission.HoldConn(conn), rw, nil
}
