// This file bounds what go-redis writes to the log.

package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// sayAgain is the minimum pause between two lines of one kind.
const sayAgain = 10 * time.Second

// ClientLogger passes the lines of go-redis on to a log, each kind of line once in ten
// seconds at most. It is for redis.SetLogger, which a program calls once at its start for all
// of its clients: by itself go-redis writes a line to the standard error for each dial that
// has failed. It is safe for concurrent use.
type ClientLogger struct {
	log *slog.Logger // nil for the default one

	mu    sync.Mutex
	kinds map[string]*kindOfLine // by format, of which go-redis has some dozens; guarded by mu
}

// kindOfLine is what is known of the lines with one format.
type kindOfLine struct {
	said    time.Time // the last that was passed on
	omitted int       // how many were left out since
}

// NewClientLogger returns a logger that writes warnings to log, or to the default logger of
// package slog at that time if log is nil. To silence the client call Disable of its package
// logging instead.
func NewClientLogger(log *slog.Logger) *ClientLogger {
	return &ClientLogger{log: log, kinds: map[string]*kindOfLine{}}
}

// Printf passes a line on, unless one with the same format was a moment ago. The next line
// of that format says how many there were since, itself included.
func (c *ClientLogger) Printf(ctx context.Context, format string, args ...any) {
	times, ok := c.due(format, time.Now())
	if !ok {
		return
	}
	log := c.log
	if log == nil {
		log = slog.Default()
	}
	log.WarnContext(ctx, "headgate: go-redis says", "text", fmt.Sprintf(format, args...), "times", times)
}

// due reports whether a line of the format may be passed on, and how often it was said.
func (c *ClientLogger) due(format string, now time.Time) (times int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	k := c.kinds[format]
	if k == nil {
		k = new(kindOfLine)
		c.kinds[format] = k
	} else if now.Sub(k.said) < sayAgain {
		k.omitted++
		return 0, false
	}

	times = k.omitted + 1
	k.said, k.omitted = now, 0
	return times, true
}
