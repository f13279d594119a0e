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

func (l *handlers) set(h slog.Handler) { l.now.Store(&h) }

// Enabled implements [slog.Handler].
func (l *handlers) Enabled(ctx context.Context, level slog.Level) bool {
	return (*l.now.Load()).Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (l *handlers) Handle(ctx context.Context, r slog.Record) error {
	return l.wrap(*l.now.Load()).Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (l *handlers) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handlers{l.now, func(h slog.Handler) slog.Handler { return l.wrap(h).WithAttrs(attrs) }}
}

// WithGroup implements [slog.Handler].
func (l *handlers) WithGroup(name string) slog.Handler {
	return &handlers{l.now, func(h slog.Handler) slog.Handler { return l.wrap(h).WithGroup(name) }}
}
