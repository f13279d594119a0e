package fiberv3mw_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/limiter"
)

// testTimeout bounds every wait.
const testTimeout = time.Minute

// store reports the keys that units are refunded to.
type store struct {
	core.Store
	refunded chan string
}

func newStore() *store {
	return &store{gatetest.Store(), make(chan string, 100)}
}

func (s *store) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	err := s.Store.Apply(ctx, ops, out)
	if err == nil && ops[0].Verb == core.Refund {
		s.refunded <- ops[0].Key
	}
	return err
}

// release waits for a refund and returns its key.
func (s *store) release(t testing.TB) string {
	t.Helper()
	timer := time.NewTimer(testTimeout)
	defer timer.Stop()
	select {
	case key := <-s.refunded:
		return key
	case <-timer.C:
		t.Fatalf("no refund within %s", testTimeout)
		return ""
	}
}

// newLimiter returns a limiter with one rule, over the store.
func newLimiter(t testing.TB, s core.Store, text string, changes ...func(*limiter.Rule)) *limiter.Limiter {
	t.Helper()
	return gatetest.Limiter(t, limiter.Config{Store: s, Rules: []limiter.Rule{gatetest.Rule(text, changes...)}})
}

// call sends the app a request from peer, and returns its context.
func call(app *fiber.App, peer net.Addr, method, path string, headers ...string) *fasthttp.RequestCtx {
	var r fasthttp.Request
	r.Header.SetMethod(method)
	r.SetRequestURI(path)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	ctx := &fasthttp.RequestCtx{}
	ctx.Init(&r, peer, nil)
	app.Handler()(ctx)
	return ctx
}

var peer = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234}
