package fiberv3mw_test

import (
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/adapters/fiberv3mw"
	"github.com/headgate/headgate/internal/test/gatetest"
)

// chain returns a function that sends one request to an app with the handlers.
func chain(handlers ...any) func() {
	app := fiber.New(fiber.Config{})
	app.Use(append(handlers, func(c fiber.Ctx) error { return c.SendString("ok") })...)
	var r fasthttp.Request
	r.SetRequestURI("/login")
	ctx := &fasthttp.RequestCtx{}
	ctx.Init(&r, peer, nil)
	answer := app.Handler()
	return func() {
		ctx.ResetUserValues()
		ctx.Response.Reset()
		answer(ctx)
	}
}

func BenchmarkWithout(b *testing.B) { benchmark(b, chain()) }

func BenchmarkWith(b *testing.B) {
	benchmark(b, chain(fiberv3mw.New(gatetest.ByAddress(b, "1000000000/1m"))))
}

func BenchmarkRefused(b *testing.B) {
	answer := chain(fiberv3mw.New(gatetest.ByAddress(b, "1/1h")))
	answer()
	benchmark(b, answer)
}

func benchmark(b *testing.B, answer func()) {
	b.ReportAllocs()
	for b.Loop() {
		answer()
	}
}
