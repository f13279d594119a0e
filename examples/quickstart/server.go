package main

import (
	"context"
	"time"

	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/limiter"
)

// frameworks are the servers that -framework can name, with the routes of this
// program.
var frameworks = map[string]func(*limiter.Limiter) serve.Server{
	"nethttp": newNetHTTP,
	"gin":     newGin,
	"echo":    newEcho,
	"fiber":   newFiber,
}

// maxHold is the longest that /hold holds a request.
const maxHold = time.Minute

// hold waits as long as the text says, or until ctx ends. It returns false for
// a text that is no span.
func hold(ctx context.Context, text string) bool {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxHold {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return true
}

const holdUsage = "for must be a span from 0s to 1m, as in /hold?for=200ms"

// body returns the answer of a limited route.
func body(ctx context.Context) string {
	if limiter.Degraded(ctx) {
		return "degraded"
	}
	return "ok"
}
