// This file tells the program of changes.

package failover

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
)

// change is a change of a breaker's state.
type change struct {
	shard string
	state State
	cause error // to bypass the primary
}

// changes are the changes that are still to be announced, in order. A goroutine
// announces them and ends with the last one, so that OnChange may call every
// method of the store, and a logger that blocks holds up no request. The zero
// value is ready for use.
type changes struct {
	mu      sync.Mutex
	list    []change
	running bool
}

// add appends a change and reports whether the caller has to start the goroutine.
func (c *changes) add(e change) (start bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, e)
	start, c.running = !c.running, true
	return start
}

// next removes the first change. It returns false if there is none, and the
// goroutine ends.
func (c *changes) next() (e change, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == 0 {
		c.list, c.running = nil, false
		return e, false
	}
	e, c.list = c.list[0], c.list[1:]
	return e, true
}

// announce has a change announced after those before it. The caller holds the lock
// of the breaker, which keeps its changes in order.
func (s *Store) announce(e change) {
	if s.changes.add(e) {
		go s.announceAll()
	}
}

func (s *Store) announceAll() {
	for {
		e, ok := s.changes.next()
		if !ok {
			return
		}
		s.announceOne(e)
	}
}

// announceOne logs a change and calls OnChange.
func (s *Store) announceOne(e change) {
	subject, attrs := "the primary store", []slog.Attr(nil)
	if e.shard != "" {
		subject, attrs = "a shard of the primary store", []slog.Attr{slog.String("shard", e.shard)}
	}
	if e.state == Open {
		attrs = append(attrs, slog.Bool("fallback", s.fallback != nil), slog.String("error", e.cause.Error()))
		s.write(slog.LevelWarn, "headgate: "+subject+" fails and is bypassed", attrs...)
	} else {
		s.write(slog.LevelInfo, "headgate: "+subject+" decides again", attrs...)
	}
	if s.onChange == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			s.write(slog.LevelError, "headgate: OnChange of a failover store panicked", slog.String("panic", fmt.Sprint(v)))
		}
	}()
	s.onChange(e.shard, e.state)
}

// write logs a line. A panic of the logger is dropped, because there is nothing to
// report it to.
func (s *Store) write(level slog.Level, text string, attrs ...slog.Attr) {
	defer func() { _ = recover() }()
	logger := s.log
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(context.Background(), level, text, attrs...)
}
