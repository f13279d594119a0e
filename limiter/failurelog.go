package limiter

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

const (
	// countEvery is the time between two lines about errors of one kind.
	countEvery = time.Minute

	// maxKinds is the maximum number of kinds of errors that are told apart. The
	// errors of further rules are of one more kind.
	maxKinds = 64
)

// failureLog logs the first error of each kind at once. While more come, it logs
// their number once in countEvery, and after a countEvery without one that they have
// ended. The zero value is ready for use.
type failureLog struct {
	kinds sync.Map // of failureKind to *failures
	count atomic.Int64
}

// failureKind is what an error is about.
type failureKind struct {
	text string
	rule string // or ""
}

// The texts of the kinds.
const (
	textStore         = "the store cannot decide, so OnStoreError does"
	textFallback      = "the store cannot decide, so its fallback does"
	textOverload      = "more comes than the store decides in time, so OnStoreError decides the rest"
	textOverloadLocal = "more comes than the store decides in time, so its fallback decides the rest"
	textRule          = "a rule cannot be evaluated, so its OnStoreError decides"
	textLease         = "a lease was not renewed in time, so its limit may be exceeded"
	textPanic         = "a function of the program panicked"
)

func kindOf(err error) failureKind {
	var panicked *PanicError
	switch rule := ruleOf(err); {
	case errors.Is(err, ErrLeaseLost):
		return failureKind{textLease, rule}
	case rule != "":
		return failureKind{textRule, rule}
	case errors.Is(err, core.ErrFallback) && errors.Is(err, core.ErrOverload):
		return failureKind{text: textOverloadLocal}
	case errors.Is(err, core.ErrFallback):
		return failureKind{text: textFallback}
	case errors.Is(err, core.ErrOverload):
		return failureKind{text: textOverload}
	case errors.As(err, &panicked):
		return failureKind{text: textPanic}
	}
	return failureKind{text: textStore}
}

// attributes are those of a line that count requests by what decided about them.
var attributes = []struct {
	by   events.Mode
	name string
}{{events.PassesUndecided, "passed"}, {events.FailsUndecided, "refused"}, {events.FallbackDecides, "local"}}

// failures are the errors of a kind.
type failures struct {
	kind  failureKind
	since atomic.Int64               // how many came since the last line
	by    [events.Modes]atomic.Int64 // by what decided about their requests

	trouble trouble // since the limiter was made

	mu     sync.Mutex
	active bool // the timer runs
	timer  *time.Timer
	latest error
}

// noteFailure logs err, or counts it. It was met by a request that by decided about,
// or by none if that is the store.
func (l *Limiter) noteFailure(err error, by events.Mode) {
	if errors.Is(err, errNoKey) { // of which warnNoKey tells
		return
	}
	f := l.failures.of(kindOf(err))
	f.trouble.note(err, by)
	if l.warner.off {
		return
	}
	f.by[by].Add(1)
	if f.since.Add(1) > 1 {
		// Others are waiting to be counted, so the timer runs.
		if f.mu.TryLock() {
			f.latest = err
			f.mu.Unlock()
		}
		return
	}
	f.mu.Lock()
	f.latest = err
	first := !f.active
	if first {
		f.active = true
		f.since.Store(0)
		f.timer = time.AfterFunc(countEvery, func() { l.logFailures(f) })
	}
	f.mu.Unlock()
	if first {
		l.logKind(slog.LevelWarn, f.kind, err, f.takeCounts()...)
	}
}

// takeCounts returns the counts of requests by what decided about them, and resets them to 0.
func (f *failures) takeCounts() (attrs []slog.Attr) {
	for _, a := range attributes {
		if n := f.by[a.by].Swap(0); n > 0 {
			attrs = append(attrs, slog.Int64(a.name, n))
		}
	}
	return attrs
}

// of returns the failures of the kind.
func (c *failureLog) of(k failureKind) *failures {
	if f, ok := c.kinds.Load(k); ok {
		return f.(*failures)
	}
	if k.rule != "" && c.count.Load() >= maxKinds {
		k.rule = ""
	}
	f, known := c.kinds.LoadOrStore(k, &failures{kind: k})
	if !known {
		c.count.Add(1)
	}
	return f.(*failures)
}

// logFailures logs how many errors came in the last countEvery, or that there were
// none: then the next one is logged at once again.
func (l *Limiter) logFailures(f *failures) {
	f.mu.Lock()
	n, err := f.since.Swap(0), f.latest
	if n > 0 {
		f.timer.Reset(countEvery)
	} else {
		f.active, f.timer, f.latest = false, nil, nil
	}
	f.mu.Unlock()
	if n > 0 {
		l.logKind(slog.LevelWarn, f.kind, err, append([]slog.Attr{slog.Int64("times", n), slog.Duration("within", countEvery)}, f.takeCounts()...)...)
	} else {
		l.logKind(slog.LevelInfo, failureKind{"for a minute no more: " + f.kind.text, f.kind.rule}, nil)
	}
}

// endFailures logs the errors that are not logged yet.
func (l *Limiter) endFailures() {
	l.failures.kinds.Range(func(_, value any) bool {
		f := value.(*failures)
		f.mu.Lock()
		if f.timer != nil {
			f.timer.Stop()
		}
		n, err := f.since.Swap(0), f.latest
		f.active, f.timer, f.latest = false, nil, nil
		f.mu.Unlock()
		if n > 0 {
			l.logKind(slog.LevelWarn, f.kind, err, append([]slog.Attr{slog.Int64("times", n)}, f.takeCounts()...)...)
		}
		return true
	})
}

func (l *Limiter) logKind(level slog.Level, k failureKind, err error, attrs ...slog.Attr) {
	if k.rule != "" {
		attrs = append(attrs, slog.String("rule", k.rule))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	l.log(level, k.text, attrs...)
}

// reportFallback reports that the fallback of the store made a decision.
func (l *Limiter) reportFallback(ctx context.Context) {
	err := core.ErrFallback
	if s, ok := l.store.(core.Outage); ok {
		if cause := s.Cause(); cause != nil {
			err = cause
		}
	}
	l.reportAs(ctx, err, events.FallbackDecides)
}
