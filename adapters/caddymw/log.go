package caddymw

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/store/redisstore"
)

// clientLog is where go-redis writes, which otherwise writes lines of its own between those of
// Caddy. It has one log for all clients of the process, so that of the configuration that Caddy
// has loaded last.
var clientLog = newHandlers(slog.Default().Handler())

// init sets it before any client is in use, because go-redis reads it without a lock.
func init() { redis.SetLogger(redisstore.NewClientLogger(slog.New(clientLog))) }

// handlers is the log of the configuration that Caddy runs now: a reload may close the log
// that an engine was opened with.
type handlers struct {
	now  *atomic.Pointer[slog.Handler]
	wrap func(slog.Handler) slog.Handler // adds the attributes and groups
}

func newHandlers(h slog.Handler) *handlers {
	l := &handlers{now: new(atomic.Pointer[slog.Handler]), wrap: func(h slog.Handler) slog.Handler { return h }}
	l.set(h)
	return l
}

func (h *handlers) set(handler slog.Handler) { h.now.Store(&handler) }

// Enabled implements [slog.Handler].
func (h *handlers) Enabled(ctx context.Context, level slog.Level) bool {
	return (*h.now.Load()).Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h *handlers) Handle(ctx context.Context, r slog.Record) error {
	return h.wrap(*h.now.Load()).Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *handlers) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handlers{h.now, func(handler slog.Handler) slog.Handler { return h.wrap(handler).WithAttrs(attrs) }}
}

// WithGroup implements [slog.Handler].
func (h *handlers) WithGroup(name string) slog.Handler {
	return &handlers{h.now, func(handler slog.Handler) slog.Handler { return h.wrap(handler).WithGroup(name) }}
}
