package echomw_test

import (
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/gatetest"
)

var limited = gatetest.Limited

// call sends a GET to the server.
func call(e *echo.Echo, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}
