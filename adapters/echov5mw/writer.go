package echov5mw

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/limiter"
)

// writer records the status that is written through it too. [echo.UnwrapResponse] reaches the
// writer underneath through Unwrap.
type writer struct {
	httpexchange.Writer
	status int // 0 if no handler has called WriteHeader
}

// wrap makes c answer through a new writer.
func wrap(c *echo.Context, a *limiter.Admission) *writer {
	w := &writer{Writer: httpexchange.Writer{ResponseWriter: c.Response(), Admission: a}}
	c.SetResponse(w)
	return w
}

// unwrap makes c answer as it did before, unless a handler has set another writer.
func (w *writer) unwrap(c *echo.Context) {
	if c.Response() == w {
		c.SetResponse(w.ResponseWriter)
	}
}

// WriteHeader records the status of the answer. Below a GET handler that answers HEAD,
// the echo.Response is committed without the status, which follows later.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 && !committed(w.ResponseWriter) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// answered reports whether a handler has sent a status or taken over the connection.
func (w *writer) answered() bool { return w.Hijacked || w.status != 0 || committed(w.ResponseWriter) }

// committed reports whether the status has been sent.
func committed(w http.ResponseWriter) bool {
	r, _ := echo.UnwrapResponse(w)
	return r != nil && r.Committed
}
