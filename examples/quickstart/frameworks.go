package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/fibermw"
	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/labstack/echo/v4"
)

// server is the server of any framework.
type server interface {
	// Serve answers until Shutdown is called or the listener is closed.
	Serve(net.Listener) error
	// Shutdown lets requests finish until ctx ends.
	Shutdown(ctx context.Context) error
}

// frameworks are the servers that -framework can name, with the same routes.
var frameworks = map[string]func(*limiter.Limiter) server{
	"nethttp": func(l *limiter.Limiter) server { return httpServer(newNetHTTP(l)) },
	"gin":     func(l *limiter.Limiter) server { return httpServer(newGin(l)) },
	"echo":    func(l *limiter.Limiter) server { return httpServer(newEcho(l)) },
	"echov5":  func(l *limiter.Limiter) server { return httpServer(newEchoV5(l)) },
	"fiber":   func(l *limiter.Limiter) server { return fiberServer{newFiber(l)} },
	"fiberv3": func(l *limiter.Limiter) server { return fiberV3Server{newFiberV3(l)} },
}

func httpServer(h http.Handler) server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
}

type fiberServer struct{ app *fiber.App }

func (s fiberServer) Serve(l net.Listener) error         { return s.app.Listener(l) }
func (s fiberServer) Shutdown(ctx context.Context) error { return s.app.ShutdownWithContext(ctx) }

func newNetHTTP(l *limiter.Limiter) http.Handler {
	limited := nethttp.New(l)
	answer := func(w http.ResponseWriter, r *http.Request, span string) {
		status, text := hold(r.Context(), span)
		w.WriteHeader(status)
		io.WriteString(w, text)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, "0s")
	})))
	mux.Handle("GET /hold", limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, r.FormValue("for"))
	})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	return mux
}

func newGin(l *limiter.Limiter) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.Recovery())
	limited := r.Group("", ginmw.New(l))
	limited.GET("/", func(c *gin.Context) { c.String(hold(c.Request.Context(), "0s")) })
	limited.GET("/hold", func(c *gin.Context) { c.String(hold(c.Request.Context(), c.Query("for"))) })
	r.GET("/healthz", func(c *gin.Context) { c.String(http.StatusOK, "ok") })
	return r
}

func newEcho(l *limiter.Limiter) http.Handler {
	e := echo.New()
	limited := echomw.New(l)
	e.GET("/", func(c echo.Context) error { return c.String(hold(c.Request().Context(), "0s")) }, limited)
	e.GET("/hold", func(c echo.Context) error {
		return c.String(hold(c.Request().Context(), c.QueryParam("for")))
	}, limited)
	e.GET("/healthz", func(c echo.Context) error { return c.String(http.StatusOK, "ok") })
	return e
}

func newFiber(l *limiter.Limiter) *fiber.App {
	app := fiber.New(fiber.Config{DisableStartupMessage: true, ReadTimeout: 5 * time.Second})
	app.Use(recover.New())
	limited := fibermw.New(l)
	answer := func(c *fiber.Ctx, span string) error {
		status, text := hold(c.UserContext(), span)
		return c.Status(status).SendString(text)
	}
	app.Get("/", limited, func(c *fiber.Ctx) error { return answer(c, "0s") })
	app.Get("/hold", limited, func(c *fiber.Ctx) error { return answer(c, c.Query("for")) })
	app.Get("/healthz", func(c *fiber.Ctx) error { return c.SendString("ok") })
	return app
}

// maxHold is the longest that /hold holds a request.
const maxHold = time.Minute

// hold waits for the span, or until ctx ends, and returns the answer of a limited
// route.
func hold(ctx context.Context, span string) (status int, body string) {
	d, err := time.ParseDuration(span)
	if err != nil || d < 0 || d > maxHold {
		return http.StatusBadRequest, "for must be a span from 0s to 1m, as in /hold?for=200ms"
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	if limiter.Degraded(ctx) {
		return http.StatusOK, "degraded"
	}
	return http.StatusOK, "ok"
}
