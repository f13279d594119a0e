// This file announces changes to the program.

package failover

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/headgate/headgate/observe/events"
)

// change is a change of a breaker's state.
type change struct {
	shard string
	state State
	cause error // to bypass the primary

	expired bool // it is no change, but the end of the shard's minute; see loggedChanges
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

// reporter reports to the program what changes: to its log, to OnChange and to the hooks.
type reporter struct {
	log         *slog.Logger
	onChange    func(string, State)
	hasFallback bool
	listeners   events.Listeners

	logged  loggedChanges
	changes changes
}

// announce has a change announced after those before it. Who changes a breaker holds its
// lock, which keeps its changes in order.
func (r *reporter) announce(e change) {
	if r.changes.add(e) {
		go r.announceAll()
	}
}

func (r *reporter) announceAll() {
	for {
		e, ok := r.changes.next()
		if !ok {
			return
		}
		r.announceOne(e)
	}
}

// announceOne logs a change, and calls OnChange and the hooks.
func (r *reporter) announceOne(e change) {
	r.logBounded(e)
	if e.expired {
		return
	}

	if f := r.listeners.Hooks().Breaker; f != nil {
		f(events.Breaker{Shard: e.shard, Open: e.state == Open, Fallback: r.hasFallback, Cause: e.cause})
	}
	if r.onChange == nil {
		return
	}
	defer r.guard("OnChange")
	r.onChange(e.shard, e.state)
}

// logBounded logs a change at once, or at the end of the minute if there were too many.
func (r *reporter) logBounded(e change) {
	expire := func() { r.announce(change{shard: e.shard, expired: true}) }
	ask := r.logged.admit
	if e.expired {
		ask = func(e change, expire func()) (change, int, bool) { return r.logged.expired(e.shard, expire) }
	}

	if line, changes, ok := ask(e, expire); ok {
		r.logChange(line, changes)
	}
}

// logChange logs a change, what it means for requests, and how many changes there were since
// the line before if there were several.
func (r *reporter) logChange(e change, changes int) {
	subject, attrs := "the primary store", []slog.Attr(nil)
	if e.shard != "" {
		subject, attrs = "a shard of the primary store", []slog.Attr{slog.String("shard", e.shard)}
	}

	if changes > 1 {
		attrs = append(attrs, slog.Int("changes", changes))
	}

	if e.state == Closed {
		r.write(slog.LevelInfo, "headgate: "+subject+" decides again", attrs...)
		return
	}

	meaning := "OnStoreError decides about requests until it answers again"
	if r.hasFallback {
		meaning = "the fallback decides, each instance for its part of the limits, until it answers again"
	}

	attrs = append(attrs, slog.Bool("fallback", r.hasFallback), slog.String("error", oneLine(e.cause)))
	r.write(slog.LevelWarn, "headgate: "+subject+" fails and is bypassed: "+meaning, attrs...)
}

// oneLine returns the text of an error in one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// write logs a line. A panic of the logger is dropped, because there is nothing to
// report it to.
func (r *reporter) write(level slog.Level, text string, attrs ...slog.Attr) {
	defer func() { _ = recover() }()

	logger := r.log
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(context.Background(), level, text, attrs...)
}

// guard, deferred, logs a panic of one of the program's functions, which may be called in a
// goroutine of the store.
func (r *reporter) guard(function string) {
	if v := recover(); v != nil {
		r.write(slog.LevelError, "headgate: "+function+" of a failover store panicked",
			slog.String("panic", fmt.Sprint(v)))
	}
}
