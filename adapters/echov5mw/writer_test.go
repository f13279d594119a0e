package echov5mw_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/echov5mw"
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
	limit := echov5mw.New(limited(t, "9 concurrent ttl=1m"))
	for name, middleware := range map[string]echo.MiddlewareFunc{
		"with":    limit,
		"without": func(next echo.HandlerFunc) echo.HandlerFunc { return next },
	} {
		called := false
		h := serving(middleware(func(c *echo.Context) error {
			called = true

			// What the writer of the server cannot do is refused as it is without the limiter.
			control := http.NewResponseController(c.Response())
			if _, _, err := control.Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("%s: Hijack: %v", name, err)
			}
			if err := control.EnableFullDuplex(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("%s: EnableFullDuplex: %v", name, err)
			}
			return c.String(200, "ok")
		}))

		if h.ServeHTTP(plain{http.Header{}}, get(t, "/")); !called {
			t.Errorf("%s: not called", name)
		}
	}
}

func TestWriterFlush(t *testing.T) {
	for name, flush := range map[string]func(http.ResponseWriter) error{
		"a Flusher":    func(w http.ResponseWriter) error { w.(http.Flusher).Flush(); return nil },
		"a controller": func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
	} {
		e := echo.New()
		e.Use(echov5mw.New(limited(t, "9 concurrent ttl=1m")))
		e.GET("/", func(c *echo.Context) error { return flush(c.Response()) })
		if !call(e, "/").Flushed {
			t.Errorf("%s: nothing was flushed", name)
		}
	}
}

// Middleware that runs after the limiter's answers with the writer that it knows, and one
// that a handler has set stays.
func TestWriterRestored(t *testing.T) {
	var own http.ResponseWriter
	for name, row := range map[string]struct {
		handler echo.HandlerFunc
		want    func(before http.ResponseWriter) http.ResponseWriter
	}{
		"after a handler": {func(c *echo.Context) error { return c.NoContent(204) },
			func(before http.ResponseWriter) http.ResponseWriter { return before }},
		"unless another was set": {func(c *echo.Context) error {
			own = &head{ResponseWriter: c.Response()}
			c.SetResponse(own)
			return nil
		}, func(http.ResponseWriter) http.ResponseWriter { return own }},
	} {
		e := echo.New()
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				// Echo's own writer before and after, or the one that the handler has put in its
				// place.
				before := c.Response()
				err := next(c)
				if got, want := c.Response(), row.want(before); got != want {
					t.Errorf("%s: %T, want %T", name, got, want)
				}
				return err
			}
		}, echov5mw.New(limited(t, "9 concurrent ttl=1m")))

		e.GET("/", row.handler)
		call(e, "/")
	}
}
