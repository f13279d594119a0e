package main

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/fibermw"
	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/store/memstore"
)

func limiterByIP(q quota, style limiter.HeaderStyle) (*limiter.Limiter, error) {
	return limiterRefusing(q, style, nil)
}

// limiterRefusing is limiterByIP with its own answer to refusals.
func limiterRefusing(q quota, style limiter.HeaderStyle, refused limiter.Template) (*limiter.Limiter, error) {
	s, err := memstore.New(memstore.Options{})
	if err != nil {
		return nil, err
	}
	return limiter.New(limiter.Config{
		Store:   s,
		Headers: style,
		Refused: refused,
		Rules:   []limiter.Rule{{Name: "api", Limit: q.limit(), Key: keyfuncs.RemoteIP}},
	})
}

func stdOurs(style limiter.HeaderStyle) func(quota, http.Handler) (http.Handler, error) {
	return func(q quota, h http.Handler) (http.Handler, error) {
		l, err := limiterByIP(q, style)
		return nethttp.New(l)(h), err
	}
}

func ginOurs(style limiter.HeaderStyle) func(quota) (gin.HandlerFunc, error) {
	return func(q quota) (gin.HandlerFunc, error) {
		l, err := limiterByIP(q, style)
		return ginmw.New(l), err
	}
}

func echoOurs(style limiter.HeaderStyle) func(quota) (echo.MiddlewareFunc, error) {
	return func(q quota) (echo.MiddlewareFunc, error) {
		l, err := limiterByIP(q, style)
		return echomw.New(l), err
	}
}

func fiberOurs(style limiter.HeaderStyle) func(quota) (fiber.Handler, error) {
	return func(q quota) (fiber.Handler, error) {
		l, err := limiterByIP(q, style)
		return fibermw.New(l), err
	}
}

func fiberOursShort(q quota) (fiber.Handler, error) {
	l, err := limiterRefusing(q, limiter.NoHeaders, limiter.Fixed(limiter.Answer{
		Status:  fiber.StatusTooManyRequests,
		Headers: []limiter.Header{{Name: "Content-Type", Value: fiber.MIMETextPlainCharsetUTF8}},
		Body:    []byte("Too Many Requests"),
	}))
	return fibermw.New(l), err
}
