package routers

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/gorilla/mux"
	"github.com/labstack/echo/v4"
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/fibermw"
	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/internal/test/pathspec"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

var all = []pathspec.Router{
	{Name: "net/http", Make: netHTTP}, {Name: "chi", Make: useChi},
	{Name: "gorilla", Make: useGorilla}, {Name: "Gin", Make: useGin},
	{Name: "Echo", Make: useEcho, Rest: true}, {Name: "Fiber", Make: useFiber},
}

// patterns translates patterns of net/http.ServeMux: for chi and gorilla, and for Gin,
// Echo and Fiber.
var patterns = map[string]struct{ chi, gorilla, gin, echo, fiber string }{
	"/{$}":          {"/", "/", "/", "/", "/"},
	"/about":        {"/about", "/about", "/about", "/about", "/about"},
	"/login":        {"/login", "/login", "/login", "/login", "/login"},
	"/files/{name}": {"/files/{name}", "/files/{name}", "/files/:name", "/files/:name", "/files/:name"},
	"/docs/":        {"/docs/*", "/docs/{rest:.*}", "/docs/*rest", "/docs/*", "/docs/*"},
	"/":             {"/*", "/{rest:.*}", "/*rest", "/*", "/*"},
}

// std asks a handler of net/http. served is the name that the handlers set.
func std(h http.Handler, served *string) func(string) string {
	return func(target string) string {
		*served = ""
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		return *served
	}
}

// handler sets served to its name.
func handler(served *string, name string) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { *served = name })
}

func netHTTP(l *limiter.Limiter, at pathspec.Place, routes []pathspec.Route) func(string) string {
	served, limit, m := new(string), nethttp.New(l), http.NewServeMux()
	for _, r := range routes {
		h := handler(served, r.Name)
		if at == pathspec.Inside {
			h = limit(h)
		}
		m.Handle(r.Pattern, h)
	}
	if at == pathspec.Inside {
		return std(m, served)
	}
	return std(limit(m), served)
}

func useChi(l *limiter.Limiter, at pathspec.Place, routes []pathspec.Route) func(string) string {
	served, limit, m := new(string), nethttp.New(l), chi.NewRouter()
	if at == pathspec.Around {
		m.Use(limit)
	}
	for _, r := range routes {
		if at == pathspec.Inside {
			m.With(limit).Handle(patterns[r.Pattern].chi, handler(served, r.Name))
		} else {
			m.Handle(patterns[r.Pattern].chi, handler(served, r.Name))
		}
	}
	return std(m, served)
}

func useGorilla(l *limiter.Limiter, at pathspec.Place, routes []pathspec.Route) func(string) string {
	served, limit, m := new(string), nethttp.New(l), mux.NewRouter()
	if at == pathspec.Around {
		m.Use(limit)
	}
	for _, r := range routes {
		h := handler(served, r.Name)
		if at == pathspec.Inside {
			h = limit(h)
		}
		m.Handle(patterns[r.Pattern].gorilla, h)
	}
	return std(m, served)
}

func useGin(l *limiter.Limiter, at pathspec.Place, routes []pathspec.Route) func(string) string {
	gin.SetMode(gin.ReleaseMode)
	served, limit, e := new(string), ginmw.New(l), gin.New()

	// Around, it runs for every request, and inside for those of a route.
	if at == pathspec.Around {
		e.Use(limit)
	}

	for _, r := range routes {
		handlers := []gin.HandlerFunc{func(*gin.Context) { *served = r.Name }}
		if at == pathspec.Inside {
			handlers = append([]gin.HandlerFunc{limit}, handlers...)
		}
		e.GET(patterns[r.Pattern].gin, handlers...)
	}
	return std(e, served)
}

func useEcho(l *limiter.Limiter, at pathspec.Place, routes []pathspec.Route) func(string) string {
	served, limit, e := new(string), echomw.New(l), echo.New()

	if at == pathspec.Around {
		e.Use(limit)
	}

	for _, r := range routes {
		h := func(echo.Context) error {
			*served = r.Name
			return nil
		}
		if at == pathspec.Inside {
			e.GET(patterns[r.Pattern].echo, h, limit)
		} else {
			e.GET(patterns[r.Pattern].echo, h)
		}
	}
	return std(e, served)
}

func useFiber(l *limiter.Limiter, at pathspec.Place, routes []pathspec.Route) func(string) string {
	served, limit, f := "", fibermw.New(l), fiber.New(fiber.Config{DisableStartupMessage: true})

	if at == pathspec.Around {
		f.Use(limit)
	}

	for _, r := range routes {
		handlers := []fiber.Handler{func(*fiber.Ctx) error {
			served = r.Name
			return nil
		}}
		if at == pathspec.Inside {
			handlers = append([]fiber.Handler{limit}, handlers...)
		}

		// Only Use matches all paths below a prefix.
		if r.Pattern == "/" {
			f.Use(handlersAny(handlers)...)
			continue
		}
		f.Get(patterns[r.Pattern].fiber, handlers...)
	}

	return func(target string) string {
		served = ""
		var q fasthttp.Request
		q.Header.SetHost("shop.example")
		q.SetRequestURI(target)
		var c fasthttp.RequestCtx
		c.Init(&q, nil, nil)
		f.Handler()(&c)
		return served
	}
}

func handlersAny(list []fiber.Handler) (args []any) {
	for _, h := range list {
		args = append(args, h)
	}
	return args
}

// TestRoutersServeTheirPatterns checks the translations above.
func TestRoutersServeTheirPatterns(t *testing.T) {
	for _, r := range all {
		for _, at := range []pathspec.Place{pathspec.Around, pathspec.Inside} {
			ask := r.Make(limiter.MustNew(limiter.Config{}), at, pathspec.Routes)
			for target, want := range map[string]string{"/": "/{$}", "/about": "/about", "/login": "/login",
				"/files/a": "/files/{name}", "/docs/a/b": "/docs/", "/none": ""} {
				if got := ask(target); got != want {
					t.Errorf("%s, %s: %s is served by %q, want %q", r.Name, at, target, got, want)
				}
			}
		}
	}
}
