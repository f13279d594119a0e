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
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// app is a server. ask sends it a GET and returns the name of the handler that served
// it, or "" if none did.
type app struct{ ask func(target string) string }

// place says where the middleware stands.
type place string

const (
	around place = "around the router"
	inside place = "around each handler"
)

// router makes an app of routes, which are pairs of a pattern of net/http.ServeMux and
// the name of its handler.
type router struct {
	name string
	make func(l *limiter.Limiter, at place, routes [][2]string) app
}

var all = []router{
	{"net/http", netHTTP}, {"chi", useChi}, {"gorilla", useGorilla}, {"Gin", useGin}, {"Echo", useEcho}, {"Fiber", useFiber},
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

// std returns the app of a handler of net/http. served is the name that the handlers
// set.
func std(h http.Handler, served *string) app {
	return app{func(target string) string {
		*served = ""
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		return *served
	}}
}

// handler sets served to its name.
func handler(served *string, name string) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { *served = name })
}

func netHTTP(l *limiter.Limiter, at place, routes [][2]string) app {
	served, limit, m := new(string), nethttp.New(l), http.NewServeMux()
	for _, r := range routes {
		h := handler(served, r[1])
		if at == inside {
			h = limit(h)
		}
		m.Handle(r[0], h)
	}
	if at == inside {
		return std(m, served)
	}
	return std(limit(m), served)
}

func useChi(l *limiter.Limiter, at place, routes [][2]string) app {
	served, limit, m := new(string), nethttp.New(l), chi.NewRouter()
	if at == around {
		m.Use(limit)
	}
	for _, r := range routes {
		if at == inside {
			m.With(limit).Handle(patterns[r[0]].chi, handler(served, r[1]))
		} else {
			m.Handle(patterns[r[0]].chi, handler(served, r[1]))
		}
	}
	return std(m, served)
}

func useGorilla(l *limiter.Limiter, at place, routes [][2]string) app {
	served, limit, m := new(string), nethttp.New(l), mux.NewRouter()
	if at == around {
		m.Use(limit)
	}
	for _, r := range routes {
		h := handler(served, r[1])
		if at == inside {
			h = limit(h)
		}
		m.Handle(patterns[r[0]].gorilla, h)
	}
	return std(m, served)
}

func useGin(l *limiter.Limiter, at place, routes [][2]string) app {
	gin.SetMode(gin.ReleaseMode)
	served, limit, e := new(string), ginmw.New(l), gin.New()
	if at == around {
		e.Use(limit)
	}
	for _, r := range routes {
		handlers := []gin.HandlerFunc{func(*gin.Context) { *served = r[1] }}
		if at == inside {
			handlers = append([]gin.HandlerFunc{limit}, handlers...)
		}
		e.GET(patterns[r[0]].gin, handlers...)
	}
	return std(e, served)
}

func useEcho(l *limiter.Limiter, at place, routes [][2]string) app {
	served, limit, e := new(string), echomw.New(l), echo.New()
	if at == around {
		e.Use(limit)
	}
	for _, r := range routes {
		h := func(echo.Context) error {
			*served = r[1]
			return nil
		}
		if at == inside {
			e.GET(patterns[r[0]].echo, h, limit)
		} else {
			e.GET(patterns[r[0]].echo, h)
		}
	}
	return std(e, served)
}

func useFiber(l *limiter.Limiter, at place, routes [][2]string) app {
	served, limit, f := "", fibermw.New(l), fiber.New(fiber.Config{DisableStartupMessage: true})
	if at == around {
		f.Use(limit)
	}
	for _, r := range routes {
		handlers := []fiber.Handler{func(*fiber.Ctx) error {
			served = r[1]
			return nil
		}}
		if at == inside {
			handlers = append([]fiber.Handler{limit}, handlers...)
		}
		if r[0] == "/" {
			f.Use(handlersAny(handlers)...)
			continue
		}
		f.Get(patterns[r[0]].fiber, handlers...)
	}
	return app{func(target string) string {
		served = ""
		var q fasthttp.Request
		q.Header.SetHost("shop.example")
		q.SetRequestURI(target)
		var c fasthttp.RequestCtx
		c.Init(&q, nil, nil)
		f.Handler()(&c)
		return served
	}}
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
		for _, at := range []place{around, inside} {
			a := r.make(limiter.MustNew(limiter.Config{}), at, routes)
			for target, want := range map[string]string{"/": "/{$}", "/about": "/about", "/login": "/login", "/files/a": "/files/{name}", "/docs/a/b": "/docs/", "/none": ""} {
				if got := a.ask(target); got != want {
					t.Errorf("%s, %s: %s is served by %q, want %q", r.name, at, target, got, want)
				}
			}
		}
	}
}
