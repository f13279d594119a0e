package telling

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/observe/events"
)

const (
	// countEvery is the time between two lines about errors of one kind.
	countEvery = time.Minute

	// maxKinds is the maximum number of kinds of errors that are counted apart. The
	// errors of further rules are of one more kind.
	maxKinds = 64
)

// Failures logs the first error of each kind at once. While more come, it logs
// their number once in countEvery, and after a countEvery without one that they have
// ended. It is made by NewFailures, and is safe for concurrent use.
type Failures struct {
	log   *Log
	kinds sync.Map // of Kind to *failures
	count atomic.Int64
}

// Kind is what an error is about.
type Kind struct {
	Text string
	Rule string // or ""
}

// attributes are those of a line that count requests by what decided about them.
var attributes = []struct {
	by   events.Mode
	name string
}{{events.PassesUndecided, "passed"}, {events.FailsUndecided, "refused"}, {events.FallbackDecides, "local"}}

// failures are the errors of a kind.
type failures struct {
	log     *Log
	kind    Kind
	repeats *quietlog.Repeats          // decides which error is logged at once
	by      [events.Modes]atomic.Int64 // since the last line, by what decided about their requests
	history errorHistory               // since the limiter was made
}

func newFailures(log *Log, k Kind) *failures {
	f := &failures{log: log, kind: k}
	f.repeats = quietlog.NewRepeats(countEvery, f.report)
	return f
}

// NewFailures returns Failures without any.
func NewFailures(log *Log) *Failures { return &Failures{log: log} }

// Record logs err, or counts it. It was met by a request that by decided about, or by none if that
// is the store.
func (f *Failures) Record(k Kind, err error, by events.Mode) {
	ofKind := f.ofKind(k)
	ofKind.history.record(err, by)
	if f.log.Off() {
		return
	}

	ofKind.by[by].Add(1)
	if ofKind.repeats.Add() {
		ofKind.write(slog.LevelWarn, ofKind.kind, err, ofKind.takeCounts()...)
	}
}

// ofKind returns the failures of the kind.
func (f *Failures) ofKind(k Kind) *failures {
	if found, ok := f.kinds.Load(k); ok {
		return found.(*failures)
	}

	if k.Rule != "" && f.count.Load() >= maxKinds {
		k.Rule = ""
	}

	found, known := f.kinds.LoadOrStore(k, newFailures(f.log, k))
	if !known {
		f.count.Add(1)
	}
	return found.(*failures)
}

// End logs the errors that are not logged yet.
func (f *Failures) End() {
	f.kinds.Range(func(_, value any) bool {
		f := value.(*failures)
		if n := f.repeats.Stop(); n > 0 {
			f.write(slog.LevelWarn, f.kind, f.history.latestError(),
				append([]slog.Attr{slog.Int64("times", n)}, f.takeCounts()...)...)
		}
		return true
	})
}

// Troubles returns the kinds of errors that came so far, those of the last first.
func (f *Failures) Troubles(now time.Time) (list []events.Trouble) {
	f.kinds.Range(func(_, value any) bool {
		f := value.(*failures)
		if t := f.history.status(now); !t.Last.IsZero() {
			t.What, t.Rule = f.kind.Text, f.kind.Rule
			list = append(list, t)
		}
		return true
	})

	// Kinds with one instant are ordered by their texts, so that two calls have one order.
	slices.SortFunc(list, func(a, b events.Trouble) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.What, b.What), cmp.Compare(a.Rule, b.Rule))
	})
	return list
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

// report logs how many errors came in the last countEvery, or that there were none: then the next
// one is logged at once again.
func (f *failures) report(n int64) {
	if n == 0 {
		f.write(slog.LevelInfo, Kind{"for a minute no more: " + f.kind.Text, f.kind.Rule}, nil)
		return
	}

	attrs := []slog.Attr{slog.Int64("times", n), slog.Duration("within", countEvery)}
	f.write(slog.LevelWarn, f.kind, f.history.latestError(), append(attrs, f.takeCounts()...)...)
}

func (f *failures) write(level slog.Level, k Kind, err error, attrs ...slog.Attr) {
	if k.Rule != "" {
		attrs = append(attrs, slog.String("rule", k.Rule))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	f.log.Write(level, k.Text, attrs...)
}

// errorHistory counts the errors of a kind since the limiter was made.
type errorHistory struct {
	by [events.Modes]atomic.Int64 // by what decided about their requests

	mu          sync.Mutex
	first, last time.Time // as in events.Trouble; guarded by mu
	latest      error     // guarded by mu
}

// record counts an error, and keeps it as the latest, unless another goroutine is keeping one.
func (e *errorHistory) record(err error, by events.Mode) {
	e.by[by].Add(1)
	if !e.mu.TryLock() {
		return
	}
	defer e.mu.Unlock()

	now := time.Now()
	if now.Sub(e.last) >= countEvery {
		e.first = now
	}
	e.last, e.latest = now, err
}

// latestError returns the latest error that was recorded, or nil if there was none.
func (e *errorHistory) latestError() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.latest
}

// status returns what came so far. The kind is not known to e.
func (e *errorHistory) status(now time.Time) events.Trouble {
	st := events.Trouble{Passed: e.by[events.PassesUndecided].Load(), Refused: e.by[events.FailsUndecided].Load(),
		Local: e.by[events.FallbackDecides].Load(), Other: e.by[events.StoreDecides].Load()}
	e.mu.Lock()
	defer e.mu.Unlock()
	if st.First, st.Last = e.first, e.last; e.latest != nil {
		st.Err = textform.Line(e.latest)
	}
	st.Active = now.Sub(e.last) < countEvery
	return st
}
