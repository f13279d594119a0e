package echov5mw_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/echov5mw"
	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/limiter"
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
	// Whichever of the two is outside, the tighter limit is the one that the client gets.
	for _, limits := range [][2]string{{"9/1m fixed-window", "2/1m fixed-window"},
		{"2/1m fixed-window", "9/1m fixed-window"}} {
		e := echo.New()
		e.Use(echov5mw.New(limited(t, limits[1])))
		e.GET("/", func(c *echo.Context) error { return c.String(200, "hello") })

		around := nethttp.New(limited(t, limits[0]))(e)
		for _, want := range []string{"1", "0", "0"} {
			w := httptest.NewRecorder()
			around.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if limit, left := w.Header().Get("X-RateLimit-Limit"),
				w.Header().Get("X-RateLimit-Remaining"); limit != "2" || left != want {
				t.Errorf("%s: %d, limit %s, %s left, want %s", limits, w.Code, limit, left, want)
			}
		}
	}
}

type userKey struct{}

// A request that a function of a rule sets is that of the handlers.
func TestRequestSetByAKeyFunction(t *testing.T) {
	user := echov5mw.Key(func(c *echo.Context) (string, bool) {
		r := c.Request()
		c.SetRequest(r.WithContext(context.WithValue(r.Context(), userKey{}, "u")))
		return "u", true
	})

	e := echo.New()
	e.Use(echov5mw.New(limited(t, "1/1h", func(r *limiter.Rule) { r.Key = user })))
	e.GET("/", func(c *echo.Context) error {
		if got := c.Request().Context().Value(userKey{}); got != "u" {
			t.Errorf("the context has the user %v", got)
		}
		return c.String(200, "hello")
	})

	for _, want := range []int{200, 429} {
		if w := call(e, "/"); w.Code != want {
			t.Errorf("%d, want %d", w.Code, want)
		}
	}
}
