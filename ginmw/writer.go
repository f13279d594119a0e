package ginmw

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/limiter"
)

// writer notes that a handler takes the connection over, and holds on to leases
// then.
type writer struct {
	gin.ResponseWriter
	admission *limiter.Admission
	hijacked  bool
}

// Unwrap returns the writer underneath, for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Status is the status that the client sees, also of a connection taken over.
func (w *writer) Status() int {
	if w.hijacked {
		return http.StatusSwitchingProtocols
	}
	return w.ResponseWriter.Status()
}

// Hijack takes the connection over, which keeps the leases until it is closed.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.Hijack()
	if err != nil {
		return conn, rw, err
	}
	w.hijacked = true
	return w.admission.HoldConn(conn), rw, nil
}
