// Package eventlog logs what becomes of requests, at a bounded rate.
//
//	refusals, err := eventlog.New(eventlog.Options{})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer refusals.Close()
//	l := limiter.MustNew(limiter.Config{Observer: refusals, Rules: []limiter.Rule{
//		{Name: "visitors", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
//	}})
//	defer l.Close()
//
// A [Log] is an [events.Observer], safe for concurrent use. [Options] say where it writes and which
// verdicts are logged.
//
// The first request that a rule refuses is in the log at once. The next ones are counted, and
// the log gets their number once a minute. So the log says which rule refuses, since when
// and how often, and an attack does not fill it. No key of a client is in it.
package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/observe/events"
)

const (
	defaultEvery = time.Minute

	// maxKinds is the maximum number of rules and verdicts that are counted apart. Further
	// ones have lines without the name of a rule.
	maxKinds = 1000
)

// Options are the options of a Log. The zero value is ready for use.
type Options struct {
	// Logger gets the lines. nil means slog.Default() at the time.
	Logger *slog.Logger

	// Verdicts are the verdicts that are logged. nil means those of requests that do not
	// pass, and FailedOpen.
	Verdicts []events.Verdict

	// Every is the time between lines about one verdict of one rule, at least a second. 0
	// means a minute.
	Every time.Duration
}

// Log is an [events.Observer] that logs. It is safe for concurrent use, and may observe any
// number of limiters.
type Log struct {
	logger *slog.Logger
	every  time.Duration
	logged [events.Verdicts]bool

	mu     sync.RWMutex
	kinds  map[kind]*quietlog.Repeats // guarded by mu
	closed bool                       // guarded by mu
}

// kind is what a line is about.
type kind struct {
	rule    string // or ""
	verdict events.Verdict
}

var _ events.Observer = (*Log)(nil)

// New returns a log. An error names every mistake in the options.
func New(o Options) (*Log, error) {
	l := &Log{logger: o.Logger, every: cmp.Or(o.Every, defaultEvery), kinds: map[kind]*quietlog.Repeats{}}
	var errs []error
	if l.every < time.Second {
		errs = append(errs, fmt.Errorf("eventlog: Every is %s; want at least 1s, or 0 for %s", o.Every, defaultEvery))
	}

	for v := range events.Verdict(events.Verdicts) {
		l.logged[v] = o.Verdicts == nil && (!v.Passes() || v == events.FailedOpen)
	}
	for _, v := range o.Verdicts {
		if int(v) >= events.Verdicts {
			errs = append(errs, fmt.Errorf("eventlog: Verdicts has %d, which is no verdict", v))
			continue
		}
		l.logged[v] = true
	}

	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return l, nil
}

// MustNew is like [New], but panics if there is an error.
func MustNew(o Options) *Log {
	l, err := New(o)
	if err != nil {
		panic(err)
	}
	return l
}

// Observe implements [events.Observer].
func (l *Log) Observe(ctx context.Context, r *events.Request) {
	logged := false
	for i := range r.Rules {
		if d := &r.Rules[i]; l.logged[d.Verdict] {
			logged = true
			if l.count(kind{d.Name, d.Verdict}) {
				l.write(ctx, kind{d.Name, d.Verdict}, attrsOf(d)...)
			}
		}
	}
	if k := (kind{verdict: r.Verdict}); !logged && l.logged[r.Verdict] && l.count(k) {
		l.write(ctx, k, withError(nil, r.Err)...)
	}
}

// count counts a request of the kind, and reports whether it is logged at once.
func (l *Log) count(k kind) bool {
	r := l.repeatsOf(k)
	return r != nil && r.Add()
}

// repeatsOf returns what counts the kind, or nil after Close.
func (l *Log) repeatsOf(k kind) *quietlog.Repeats {
	l.mu.RLock()
	r, closed := l.kinds[k], l.closed
	l.mu.RUnlock()
	if r != nil || closed {
		return r
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	// Beyond the maximum the lines of a verdict have no rule, and share one count.
	if len(l.kinds) >= maxKinds {
		k.rule = ""
	}

	// Another request may have added the kind between the two locks.
	if r = l.kinds[k]; r == nil && !l.closed {
		// An observer must not keep what a request refers to.
		k.rule = strings.Clone(k.rule)
		r = quietlog.NewRepeats(l.every, func(n int64) { l.logRepeats(k, n) })
		l.kinds[k] = r
	}
	return r
}

// logRepeats logs how many requests there were since the last line, unless there were none.
func (l *Log) logRepeats(k kind, n int64) {
	if n > 0 {
		l.write(context.Background(), k, slog.Int64("times", n), slog.Duration("within", l.every))
	}
}

// Close logs how many requests there were since the last lines. Later requests are not logged.
func (l *Log) Close() error {
	l.mu.Lock()
	kinds := l.kinds
	l.kinds, l.closed = nil, true
	l.mu.Unlock()

	for _, r := range kinds {
		r.Close()
	}
	return nil
}

// write writes a line. A panic of the logger is dropped, because there is nothing to report it
// to.
func (l *Log) write(ctx context.Context, k kind, attrs ...slog.Attr) {
	defer func() { _ = recover() }()
	logger := l.logger
	if logger == nil {
		logger = slog.Default()
	}

	level, text := slog.LevelInfo, "headgate: a request did not pass"
	if k.verdict.Passes() && k.verdict != events.Overruled {
		text = "headgate: a request passed"
	}
	if k.verdict == events.FailedOpen || k.verdict == events.FailedClosed {
		level = slog.LevelWarn
	}

	all := make([]slog.Attr, 0, 8)
	all = append(all, slog.String("result", k.verdict.String()))
	if k.rule != "" {
		all = append(all, slog.String("rule", k.rule))
	}
	logger.LogAttrs(ctx, level, text, append(all, attrs...)...)
}

// attrsOf returns what a line says of the first request.
func attrsOf(r *events.Rule) []slog.Attr {
	attrs := []slog.Attr{slog.String("limit", r.Limit.String()), slog.Int64("cost", r.Cost)}
	if r.Waited > 0 {
		attrs = append(attrs, slog.Duration("waited", r.Waited))
	}
	if d := r.Decision.RetryAfter; d > 0 && d != core.Never {
		attrs = append(attrs, slog.Duration("retry_after", d.Round(time.Millisecond)))
	}
	if r.Decision.Fallback {
		attrs = append(attrs, slog.Bool("fallback", true))
	}
	return withError(attrs, r.Err)
}

// withError appends the error, unless it is nil, in one line.
func withError(attrs []slog.Attr, err error) []slog.Attr {
	if err == nil {
		return attrs
	}
	return append(attrs, slog.String("error", strings.ReplaceAll(err.Error(), "\n", "; ")))
}
