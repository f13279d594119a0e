package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
)

// frameworks are the servers that -framework can name.
var frameworks = map[string]func(*core.Limiter) server{
	"nethttp": newNetHTTP,
	"gin":     newGin,
}

// server is a framework with the routes of this program.
type server interface {
	serve(net.Listener) error
	shutdown(context.Context) error
}

// standard serves a handler with net/http.
type standard struct{ http.Server }

func newStandard(h http.Handler) *standard {
	return &standard{http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}}
}

func (s *standard) serve(l net.Listener) error {
	if err := s.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

func (s *standard) shutdown(ctx context.Context) error { return s.Shutdown(ctx) }

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

// body is what a limited route answers.
func body(ctx context.Context) string {
	if core.Degraded(ctx) {
		return "degraded"
	}
	return "ok"
}
