package main

import (
	"io"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// frameworks are the ways to serve the shop behind a limiter. Both answer the same.
func frameworks() map[string]func(*limiter.Limiter) http.Handler {
	return map[string]func(*limiter.Limiter) http.Handler{"gin": withGin, "nethttp": withNetHTTP}
}

func withGin(l *limiter.Limiter) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.GET("/healthz", text("ok"))
	limited := r.Group("", ginmw.New(l))
	limited.GET("/", text("the shop"))
	limited.GET("/products/:id", text("a product"))
	limited.POST("/login", text("welcome"))
	return r
}

func text(s string) gin.HandlerFunc {
	return func(c *gin.Context) { c.String(http.StatusOK, s+"\n") }
}

func withNetHTTP(l *limiter.Limiter) http.Handler {
	limited := nethttp.New(l)
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", page("ok"))
	mux.Handle("GET /{$}", limited(page("the shop")))
	mux.Handle("GET /products/{id}", limited(page("a product")))
	mux.Handle("POST /login", limited(page("welcome")))
	return mux
}

type page string

func (p page) ServeHTTP(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, string(p)+"\n") }
