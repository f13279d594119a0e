package echov5mw

import (
	"net/http"

	"github.com/labstack/echo/v5"
)

// statusOf returns the status of the answer after the handler has returned err. For an
// error that has not been answered it is the status that Echo's default error handler
// sends.
func statusOf(w *writer, err error) int {
	switch {
	case w.hijacked:
		return http.StatusSwitchingProtocols
	case w.status != 0:
		return w.status
	}
	_, status := echo.ResolveResponseStatus(w, err)
	return status
}
