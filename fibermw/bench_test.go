package fibermw_test

import (
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/fibermw"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// chain returns a function that has an app answer one request, with handlers in
// front.
func chain(handlers ...any) func() {
	app := newApp(fiber.Config{})
	app.Use(append(handlers, func(c *fiber.Ctx) error { return c.SendString("ok") })...)
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

func byAddress(t testing.TB) *limiter.Limiter {
	return newLimiter(t, memstore.MustNew(memstore.Options{}), "1000000000/1m", func(r *limiter.Rule) { r.Key = keyfuncs.RemoteIP })
}

func oneAnHour(t testing.TB) *limiter.Limiter {
	return newLimiter(t, memstore.MustNew(memstore.Options{}), "1/1h", func(r *limiter.Rule) { r.Key = keyfuncs.RemoteIP })
}

func BenchmarkWithout(b *testing.B) { benchmark(b, chain()) }

func BenchmarkWith(b *testing.B) { benchmark(b, chain(fibermw.New(byAddress(b)))) }

func BenchmarkRefused(b *testing.B) {
	answer := chain(fibermw.New(oneAnHour(b)))
	answer()
	benchmark(b, answer)
}

func benchmark(b *testing.B, answer func()) {
	b.ReportAllocs()
	for b.Loop() {
		answer()
	}
}
