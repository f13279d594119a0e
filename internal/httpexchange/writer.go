package httpexchange

import (
	"bufio"
	"net"
	"net/http"

	"github.com/headgate/headgate/limiter"
)

// Hijack takes over the connection of w, and keeps the leases of the admission until the
// connection is closed.
func Hijack(w http.ResponseWriter, a *limiter.Admission) (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return conn, rw, err
	}
	return a.HoldConn(conn), rw, nil
}

// Writer records that a handler has taken over the connection, and then keeps the leases until
// the connection is closed. [http.ResponseController], and therefore the answer of Echo,
// reaches other methods of the writer underneath through Unwrap.
type Writer struct {
	http.ResponseWriter
	Admission *limiter.Admission
	Hijacked  bool
}

// Unwrap returns the writer underneath.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush exists for code that asserts [http.Flusher] on the writer of an answer.
func (w *Writer) Flush() { _ = w.FlushError() }

// FlushError sends buffered data to the client.
func (w *Writer) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack takes over the connection. The leases are held until it is closed.
func (w *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := Hijack(w.ResponseWriter, w.Admission)
	w.Hijacked = w.Hijacked || err == nil
	return conn, rw, err
}
