package echomw

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// statusOf is the status of the answer once the handler has returned err.
func statusOf(c echo.Context, err error) int {
	answer := c.Response()
	if err == nil || answer.Committed {
		return answer.Status
	}
	return statusOfError(err)
}

// statusOfError is the status that Echo's own error handler answers. Like that
// one it does not look into wrapped errors, but into Internal.
func statusOfError(err error) int {
	e, ok := err.(*echo.HTTPError)
	if !ok {
		return http.StatusInternalServerError
	}
	if cause, ok := e.Internal.(*echo.HTTPError); ok {
		e = cause
	}
	return e.Code
}
