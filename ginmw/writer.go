package ginmw

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
)

// writer holds on to leases when a handler takes the connection over.
type writer struct {
	gin.ResponseWriter
	admission *core.Admission
}

// Unwrap returns the writer underneath, for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack takes the connection over, which keeps the leases until it is closed.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.Hijack()
	if err != nil {
		return conn, rw, err
	}
	return w.admission.HoldConn(conn), rw, nil
}
