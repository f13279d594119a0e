package ginmw

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/llmusage"
)

// writer records that a handler has taken over the connection, and then keeps the
// leases until the connection is closed.
type writer struct {
	gin.ResponseWriter
	admission *limiter.Admission
	hijacked  bool
	usage     *llmusage.Meter // reads the body, or nil
}

// Unwrap returns the writer underneath, for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write sends the bytes, and has the usage in them read.
func (w *writer) Write(p []byte) (int, error) {
	if w.usage != nil {
		_, _ = w.usage.Write(p) // also what the client does not get any more
	}
	return w.ResponseWriter.Write(p)
}

// WriteString is Write of a string.
func (w *writer) WriteString(s string) (int, error) {
	if w.usage != nil {
		_, _ = io.WriteString(w.usage, s)
	}
	return w.ResponseWriter.WriteString(s)
}

// Status returns the status that the client sees. It is 101 after Hijack.
func (w *writer) Status() int {
	if w.hijacked {
		return http.StatusSwitchingProtocols
	}
	return w.ResponseWriter.Status()
}

// Hijack takes over the connection. The leases are held until it is closed.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := httpexchange.Hijack(w.ResponseWriter, w.admission)
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}
