package echov5mw

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/limiter"
)

// statusOf returns the status of the answer after the handler has returned err, or has
// panicked. For an error that has not been answered it is the status that Echo's default error
// handler sends.
func statusOf(w *writer, a *limiter.Admission, err error, returned bool) int {
	switch {
	case w.Hijacked:
		return http.StatusSwitchingProtocols
	case w.status != 0:
		return w.status
	}

	// Nothing was sent through w. Echo knows whether it was by another way.
	answer, status := echo.ResolveResponseStatus(w, err)
	switch {
	case answer != nil && answer.Committed:
		return status
	case !returned:
		return http.StatusInternalServerError
	case err == nil:
		return a.Unanswered(status)
	}

	return status
}
