package httpexchange

import (
	"bufio"
	"net"
	"net/http"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/llmusage"
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

	usage *llmusage.Meter // reads the body, or nil
}

// Unwrap returns the writer underneath.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// See has the admission see the answer to the request.
func (w *Writer) See(r *http.Request) {
	w.usage = ReadUsage(r, w.Admission)
	See(w.Admission, w.Header(), w.usage)
}

// Write sends the bytes, and has the usage in them read.
func (w *Writer) Write(p []byte) (int, error) {
	if w.usage != nil {
		_, _ = w.usage.Write(p) // also what the client does not get any more
	}
	return w.ResponseWriter.Write(p)
}

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
