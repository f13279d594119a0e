package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/valyala/fasthttp"
)

// serve answers one request of client i, without a network, and returns the
// status.
type serve func(i int) int

// service is a handler behind a limiter, in a framework. requests sends it requests one after the
// other.
type service interface{ requests() serve }

// netService is a handler of net/http.
type netService struct{ handler http.Handler }

// fastService is a handler of fasthttp.
type fastService struct{ handler fasthttp.RequestHandler }

// clients is how many addresses send requests in turn.
const clients = 1000

const okText = "ok"

// sink is a ResponseWriter that keeps no body.
type sink struct {
	header http.Header
	code   int
	inner  *httptest.ResponseRecorder
}

// Unwrap returns a writer of package net/http, as is beneath the writers of a service: headgate
// keeps in its headers what it leaves in the context under a writer that it does not know.
func (s *sink) Unwrap() http.ResponseWriter { return s.inner }

func (s *sink) Header() http.Header { return s.header }
func (s *sink) WriteHeader(c int)   { s.code = c }

func (s *sink) Write(b []byte) (int, error) {
	if s.code == 0 {
		s.code = http.StatusOK
	}
	return len(b), nil
}

func (s *sink) WriteString(text string) (int, error) {
	if s.code == 0 {
		s.code = http.StatusOK
	}
	return len(text), nil
}

func (n netService) requests() serve {
	r := httptest.NewRequest("GET", "http://localhost/", nil)
	addrs := addresses(clients)
	for i := range addrs {
		addrs[i] = net.JoinHostPort(addrs[i], "40000")
	}

	// One request and one writer serve all calls, so that only the handler allocates.
	w := &sink{header: http.Header{}, inner: httptest.NewRecorder()}
	return func(i int) int {
		clear(w.header)
		w.code, r.RemoteAddr = 0, addrs[i]
		n.handler.ServeHTTP(w, r)
		return w.code
	}
}

func std(limit func(quota, http.Handler) (http.Handler, error)) func(quota) (service, error) {
	plain := []string{"text/plain; charset=utf-8"}
	return func(q quota) (service, error) {
		h, err := limit(q, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = plain
			_, _ = io.WriteString(w, okText)
		}))
		if err != nil {
			return nil, err
		}
		return netService{h}, nil
	}
}

func ginApp(limit func(quota) (gin.HandlerFunc, error)) func(quota) (service, error) {
	return func(q quota) (service, error) {
		gin.SetMode(gin.ReleaseMode)
		m, err := limit(q)
		if err != nil {
			return nil, err
		}
		app := gin.New()
		app.Use(m)
		app.GET("/", func(c *gin.Context) { c.String(http.StatusOK, okText) })
		return netService{app}, nil
	}
}

func echoApp(limit func(quota) (echo.MiddlewareFunc, error)) func(quota) (service, error) {
	return func(q quota) (service, error) {
		m, err := limit(q)
		if err != nil {
			return nil, err
		}
		app := echo.New()
		app.Logger.SetOutput(io.Discard)
		app.Use(m)
		app.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, okText) })
		return netService{app}, nil
	}
}

func fiberApp(limit func(quota) (fiber.Handler, error)) func(quota) (service, error) {
	return func(q quota) (service, error) {
		m, err := limit(q)
		if err != nil {
			return nil, err
		}

		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Use(m)
		app.Get("/", func(c *fiber.Ctx) error { return c.SendString(okText) })

		return fastService{app.Handler()}, nil
	}
}

func (f fastService) requests() serve {
	peers := make([]net.Addr, clients)
	for i, a := range addresses(clients) {
		peers[i] = &net.TCPAddr{IP: net.ParseIP(a), Port: 40000}
	}

	c := new(fasthttp.RequestCtx)
	c.Init(new(fasthttp.Request), peers[0], nil)

	// One context serves all calls, as fasthttp uses one again.
	return func(i int) int {
		c.Request.Reset()
		c.Response.Reset()
		c.ResetUserValues()
		c.Request.SetRequestURI("/")
		c.Request.Header.SetHost("localhost")
		c.SetRemoteAddr(peers[i])
		f.handler(c)
		return c.Response.StatusCode()
	}
}
