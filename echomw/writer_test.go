package echomw_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/echomw"
)

// plain is a writer without optional methods.
type plain struct{ header http.Header }

func (p plain) Header() http.Header       { return p.header }
func (plain) Write(b []byte) (int, error) { return len(b), nil }
func (plain) WriteHeader(int)             {}

// serving returns a server that answers GET / by h.
func serving(h echo.HandlerFunc) http.Handler {
	e := echo.New()
	e.GET("/", h)
	return e
}

func get(t testing.TB, path string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWriterUnsupportedMethods(t *testing.T) {
	limit := echomw.New(limited(t, "9 concurrent ttl=1m"))
	// With the middleware the handler must be told the same as without it.
	for name, middleware := range map[string]echo.MiddlewareFunc{
		"with":    limit,
		"without": func(next echo.HandlerFunc) echo.HandlerFunc { return next },
	} {
		called := false
		h := serving(middleware(func(c echo.Context) error {
			called = true
			// The server's writer can neither flush nor be taken over.
			control := http.NewResponseController(c.Response().Writer)
			if err := control.Flush(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("%s: Flush: %v", name, err)
			}

			if _, _, err := c.Response().Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("%s: Hijack: %v", name, err)
			}

			return c.String(200, "ok")
		}))

		// The handler was there to be told.
		if h.ServeHTTP(plain{http.Header{}}, get(t, "/")); !called {
			t.Errorf("%s: not called", name)
		}
	}
}

func TestWriterFlush(t *testing.T) {
	e := echo.New()
	e.Use(echomw.New(limited(t, "9 concurrent ttl=1m")))
	e.GET("/", func(c echo.Context) error {
		c.Response().Writer.(http.Flusher).Flush()
		return nil
	})
	if !call(e, "/").Flushed {
		t.Error("nothing was flushed")
	}
}
