package main

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/limiter"
)

func newEcho(l *limiter.Limiter) serve.Server {
	e := echo.New()
	e.GET("/healthz", func(c echo.Context) error { return c.String(http.StatusOK, "ok") })
	limit := echomw.New(l)
	e.GET("/", func(c echo.Context) error {
		return c.String(http.StatusOK, body(c.Request().Context()))
	}, limit)
	e.GET("/hold", func(c echo.Context) error {
		if !hold(c.Request().Context(), c.QueryParam("for")) {
			return c.String(http.StatusBadRequest, holdUsage)
		}
		return c.String(http.StatusOK, body(c.Request().Context()))
	}, limit)
	return serve.HTTP(e)
}
