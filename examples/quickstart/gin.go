package main

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/limiter"
)

func newGin(l *limiter.Limiter) serve.Server {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.Recovery())
	r.GET("/healthz", func(c *gin.Context) { c.String(http.StatusOK, "ok") })
	limited := r.Group("", ginmw.New(l))
	limited.GET("/", func(c *gin.Context) { c.String(http.StatusOK, body(c.Request.Context())) })
	limited.GET("/hold", func(c *gin.Context) {
		if !hold(c.Request.Context(), c.Query("for")) {
			c.String(http.StatusBadRequest, holdUsage)
			return
		}
		c.String(http.StatusOK, body(c.Request.Context()))
	})
	return serve.HTTP(r)
}
