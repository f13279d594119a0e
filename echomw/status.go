package echomw

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// statusOfError returns the status that Echo's default error handler sends for err.
// Like that handler it does not unwrap errors, except for the field Internal.
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
