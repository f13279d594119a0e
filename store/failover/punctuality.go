// This file reports whether this process was late itself.

package failover

import (
	"sync"
	"time"
)

const (
	// tick is the pause between two looks at the clock, and how late one may come.
	tick = 20 * time.Millisecond

	// watched is how long after the latest slow call the clock is looked at.
	watched = 10 * time.Second
)

// punctuality is the evidence that this process was not late: a process that was stopped, or
// has no processor, sees every answer late, from any store. While calls are slow, a
// timer fires again and again; a time in which each firing was punctual is evidence. The
// zero value is ready for use.
type punctuality struct {
	mu     sync.Mutex // guards all below
	timer  *time.Timer
	since  time.Time // no firing was late since then
	due    time.Time // of the next firing
	until  time.Time // of the last one; zero while there is no timer
	closed bool
}

// wasPunctual reports whether this process was punctual for the whole of a slow call. Of the first
// slow call in a while it is not known.
func (p *punctuality) wasPunctual(start time.Time, took time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	now := start.Add(took)
	if p.until.IsZero() {
		p.startTimerLocked(now)
		return false
	}

	p.until = now.Add(max(watched, 2*took))
	p.checkLocked(now)
	return !start.Before(p.since)
}

// startTimerLocked starts the timer.
func (p *punctuality) startTimerLocked(now time.Time) {
	if p.closed {
		return
	}

	p.since, p.due, p.until = now, now.Add(tick), now.Add(watched)
	p.timer = time.AfterFunc(tick, p.fire)
}

// checkLocked drops the evidence if the timer should have fired long ago.
func (p *punctuality) checkLocked(now time.Time) {
	if now.Sub(p.due) > tick {
		p.since = now
	}
}

func (p *punctuality) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()

	now := time.Now()
	p.checkLocked(now)
	if p.closed || now.After(p.until) {
		p.until = time.Time{}
		return
	}
	p.due = now.Add(tick)
	p.timer.Reset(tick)
}

// close stops the timer.
func (p *punctuality) close() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
