package echomw_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/nethttp"
)

var limited = gatetest.Limited

// call sends a GET to the server.
func call(e *echo.Echo, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// The headers of a limiter around Echo and of one inside it are merged.
func TestHeadersAroundAndInsideEcho(t *testing.T) {
	for _, limits := range [][2]string{{"9/1m fixed-window", "2/1m fixed-window"}, {"2/1m fixed-window", "9/1m fixed-window"}} {
		e := echo.New()
		e.Use(echomw.New(limited(t, limits[1])))
		e.GET("/", func(c echo.Context) error { return c.String(200, "hello") })
		around := nethttp.New(limited(t, limits[0]))(e)
		for _, want := range []string{"1", "0", "0"} {
			w := httptest.NewRecorder()
			around.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if limit, left := w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"); limit != "2" || left != want {
				t.Errorf("%s: %d, limit %s, %s left, want %s", limits, w.Code, limit, left, want)
			}
		}
	}
}
