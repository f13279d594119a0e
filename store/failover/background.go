package failover

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// background runs do again and again as long as there is more to do, never
// twice at a time. Between two runs there is a timer and no goroutine.
//
//	        arm                 the pause is over
//	idle ---------> scheduled ---------------------> running
//	 ^                  ^                              |  |
//	 |                  |  more to do, or armed        |  |
//	 |                  +------------------------------+  |
//	 |                            nothing to do           |
//	 +----------------------------------------------------+
type background struct {
	do    func(context.Context) (more bool)
	pause func() time.Duration
	life  context.Context
	end   context.CancelFunc
	born  time.Time
	due   atomic.Int64 // nanoseconds from born to the start of the next run

	mu      sync.Mutex  // guards all below
	timer   *time.Timer // nil unless it is set or its run is in progress
	asked   bool        // for another run while one is in progress
	atOnce  bool        // the next run begins without a pause
	running sync.WaitGroup
}

func newBackground(do func(context.Context) bool, pause func() time.Duration) *background {
	b := &background{do: do, pause: pause, born: time.Now()}
	b.life, b.end = context.WithCancel(context.Background())
	return b
}

// arm makes a run begin after a pause, unless one is scheduled already. A run
// in progress does not count, because it may have missed the new work.
func (b *background) arm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = true
	if b.timer == nil {
		b.setLocked()
	}
}

// armNow makes a run begin at once, and not after the pause of one that is scheduled.
func (b *background) armNow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked, b.atOnce = true, true

	if b.timer == nil {
		b.setLocked()
		return
	}

	// A run in progress looks at atOnce when it ends.
	if b.timer.Stop() {
		b.running.Done()
		b.setLocked()
	}
}

// setLocked schedules a run after a pause, or at once if one was asked for.
func (b *background) setLocked() {
	if b.life.Err() != nil {
		return
	}

	d := b.pause()
	if b.atOnce {
		d, b.atOnce = 0, false
	}
	b.running.Add(1)
	b.due.Store(int64(time.Since(b.born) + d))
	b.timer = time.AfterFunc(d, b.run)
}

func (b *background) run() {
	defer b.running.Done()
	b.mu.Lock()
	b.asked = false
	b.mu.Unlock()

	// What is asked for from here on may be missed by this run, so it makes another.
	more := b.do(b.life)

	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = nil
	if more || b.asked {
		b.setLocked()
	}
}

// wait returns the time until the next run begins.
func (b *background) wait() time.Duration {
	return max(0, time.Duration(b.due.Load())-time.Since(b.born))
}

// close prevents further runs and waits for one in progress.
func (b *background) close() {
	b.end()

	b.mu.Lock()

	// A timer that was stopped in time starts no run, which the wait below would be for.
	if b.timer != nil && b.timer.Stop() {
		b.running.Done()
		b.timer = nil
	}
	b.mu.Unlock()

	b.running.Wait()
}
