package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/valyala/fasthttp"
)

// serve answers one request of client i, without a network, and tells the
// status.
type serve func(i int) int

// clients are how many addresses ask in turn.
const clients = 1000

func httpSection(p pace) ([]Table, error) {
	var tables []Table
	for _, f := range frameworks {
		var names []string
		var list []contender
		for _, peer := range f.peers {
			names = append(names, peer.name)
			s, err := peer.open()
			list = append(list, contender{peer.name, func() ([]float64, error) {
				if err != nil {
					return nil, err
				}
				return answerFor(s, p.round)
			}})
		}
		t := newTable("http "+f.name, f.name+": ns a request through the middleware",
			fmt.Sprintf("One rule by address, headers on, %d addresses, no network. The row %q is to be taken off the others.", clients, bare),
			[]string{"ns", "allocations"}, names)
		t.enter(0, contest(list, p.rounds))
		tables = append(tables, *t)
	}
	return tables, nil
}

// answerFor measures ns and allocations a request.
func answerFor(s serve, d time.Duration) ([]float64, error) {
	n, i := 0, 0
	one := func() error {
		i = (i + 1) % clients
		if code := s(i); code != http.StatusOK {
			return fmt.Errorf("status %d", code)
		}
		return nil
	}
	for range 2 * clients {
		if err := one(); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	for time.Since(start) < d {
		for range 64 {
			if err := one(); err != nil {
				return nil, err
			}
		}
		n += 64
	}
	ns := float64(time.Since(start)) / float64(n)
	return []float64{ns, mallocs(2000, func() { _ = one() })}, nil
}

// sink is a ResponseWriter that keeps no body.
type sink struct {
	header http.Header
	code   int
}

func (s *sink) Header() http.Header { return s.header }
func (s *sink) WriteHeader(c int)   { s.code = c }
func (s *sink) Write(b []byte) (int, error) {
	if s.code == 0 {
		s.code = http.StatusOK
	}
	return len(b), nil
}

var okBody = []byte("ok")

// requests go to the handler one after the other.
func requests(h http.Handler) (serve, error) {
	r, err := http.NewRequest("GET", "http://localhost/", nil)
	if err != nil {
		return nil, err
	}
	addrs := addresses(clients)
	for i := range addrs {
		addrs[i] = net.JoinHostPort(addrs[i], "40000")
	}
	w := &sink{header: http.Header{}}
	return func(i int) int {
		clear(w.header)
		w.code, r.RemoteAddr = 0, addrs[i]
		h.ServeHTTP(w, r)
		return w.code
	}, nil
}

func std(limit func(http.Handler) (http.Handler, error)) func() (serve, error) {
	return func() (serve, error) {
		h, err := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(okBody) }))
		if err != nil {
			return nil, err
		}
		return requests(h)
	}
}

func ginApp(limit func() (gin.HandlerFunc, error)) func() (serve, error) {
	return func() (serve, error) {
		gin.SetMode(gin.ReleaseMode)
		m, err := limit()
		if err != nil {
			return nil, err
		}
		app := gin.New()
		app.Use(m)
		app.GET("/", func(c *gin.Context) { _, _ = c.Writer.Write(okBody) })
		return requests(app)
	}
}

func echoApp(limit func() (echo.MiddlewareFunc, error)) func() (serve, error) {
	return func() (serve, error) {
		m, err := limit()
		if err != nil {
			return nil, err
		}
		app := echo.New()
		app.Logger.SetOutput(io.Discard)
		app.Use(m)
		app.GET("/", func(c echo.Context) error {
			_, err := c.Response().Write(okBody)
			return err
		})
		return requests(app)
	}
}

func fiberApp(limit func() (fiber.Handler, error)) func() (serve, error) {
	return func() (serve, error) {
		m, err := limit()
		if err != nil {
			return nil, err
		}
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Use(m)
		app.Get("/", func(c *fiber.Ctx) error { return c.Send(okBody) })
		handler := app.Handler()
		peers := make([]net.Addr, clients)
		for i, a := range addresses(clients) {
			peers[i] = &net.TCPAddr{IP: net.ParseIP(a), Port: 40000}
		}
		c := new(fasthttp.RequestCtx)
		c.Init(new(fasthttp.Request), peers[0], nil)
		return func(i int) int {
			c.Request.Reset()
			c.Response.Reset()
			c.ResetUserValues()
			c.Request.SetRequestURI("/")
			c.Request.Header.SetHost("localhost")
			c.SetRemoteAddr(peers[i])
			handler(c)
			return c.Response.StatusCode()
		}, nil
	}
}
