package main

import (
	"net/http"

	"github.com/headgate/headgate/echov5mw"
	"github.com/headgate/headgate/limiter"
	"github.com/labstack/echo/v5"
)

func newEchoV5(l *limiter.Limiter) http.Handler {
	e := echo.New()
	limited := echov5mw.New(l)
	e.GET("/", func(c *echo.Context) error { return c.String(hold(c.Request().Context(), "0s")) }, limited)
	e.GET("/hold", func(c *echo.Context) error {
		return c.String(hold(c.Request().Context(), c.QueryParam("for")))
	}, limited)
	e.GET("/healthz", func(c *echo.Context) error { return c.String(http.StatusOK, "ok") })
	return e
}
