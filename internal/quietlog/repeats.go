package quietlog

import (
	"sync"
	"sync/atomic"
	"time"
)

// Repeats counts events of one kind, of which the first is reported at once, and after it once in
// a while how many came:
//
//	quiet   timer is nil      Add returns true, and starts the timer
//	active  the timer runs    Add counts; tick reports the count, and all is quiet if it is 0
//
// It is safe for concurrent use. Use [NewRepeats].
type Repeats struct {
	every  time.Duration
	report func(n int64)
	since  atomic.Int64 // the last report; lowered with mu held

	mu    sync.Mutex
	timer *time.Timer // guarded by mu; nil if the next event is reported at once
}

// NewRepeats returns a Repeats that calls report, at least so long after the first event and
// then as often, with how many came since. A report of none is the last one, and the next event
// is reported at once again. No lock is held meanwhile.
func NewRepeats(every time.Duration, report func(n int64)) *Repeats {
	return &Repeats{every: every, report: report}
}

// Add counts an event, and reports whether the caller has to report it at once.
func (r *Repeats) Add() (first bool) {
	if r.since.Add(1) > 1 {
		return false // the timer runs, or the goroutine that counted 1 is about to start it
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil || r.since.Load() == 0 {
		return false // a report is due, or Stop has counted the event meanwhile
	}
	r.since.Add(-1)
	r.timer = time.AfterFunc(r.every, r.tick)
	return true
}

// tick reports how many events there were, and goes on until there are none.
func (r *Repeats) tick() {
	r.mu.Lock()
	n := r.since.Swap(0)
	if n > 0 && r.timer != nil {
		r.timer.Reset(r.every)
	} else {
		r.timer = nil
	}
	r.mu.Unlock()

	r.report(n)
}

// Close reports the events since the last report, unless there are none. An event that comes
// later is the first again.
func (r *Repeats) Close() {
	if n := r.Stop(); n > 0 {
		r.report(n)
	}
}

// Stop is Close for a caller who reports the last events in words of their own: it returns how
// many there were, and calls report for none.
func (r *Repeats) Stop() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopLocked()
}

// stopLocked is Stop with mu held, so that no event is both in its number and the first of an Add
// that has counted and waits for mu.
func (r *Repeats) stopLocked() (n int64) {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	return r.since.Swap(0)
}
