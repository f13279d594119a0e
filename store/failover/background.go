package failover

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// background does something again and again as long as there is more to do, never
// twice at a time. Between two runs there is a timer and no goroutine.
type background struct {
	do    func(context.Context) (more bool)
	pause func() time.Duration
	life  context.Context
	end   context.CancelFunc
	born  time.Time
	due   atomic.Int64 // the next run begins so many nanoseconds after born

	mu      sync.Mutex
	timer   *time.Timer // nil unless one is set or its run runs
	asked   bool        // for one more run while one runs
	running sync.WaitGroup
}

func newBackground(do func(context.Context) bool, pause func() time.Duration) *background {
	b := &background{do: do, pause: pause, born: time.Now()}
	b.life, b.end = context.WithCancel(context.Background())
	return b
}

// arm has a run begin after a pause, unless one is to come anyway. One that
// runs now does not count: it may have missed what there is to do.
func (b *background) arm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = true
	if b.timer == nil {
		b.set()
	}
}

// set is called with the lock held.
func (b *background) set() {
	if b.life.Err() != nil {
		return
	}
	d := b.pause()
	b.running.Add(1)
	b.due.Store(int64(time.Since(b.born) + d))
	b.timer = time.AfterFunc(d, b.run)
}

func (b *background) run() {
	defer b.running.Done()
	b.mu.Lock()
	b.asked = false
	b.mu.Unlock()
	more := b.do(b.life)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = nil
	if more || b.asked {
		b.set()
	}
}

// wait is how long until the next run begins.
func (b *background) wait() time.Duration {
	return max(0, time.Duration(b.due.Load())-time.Since(b.born))
}

// close ends everything, and waits for a run that runs.
func (b *background) close() {
	b.end()
	b.mu.Lock()
	if b.timer != nil && b.timer.Stop() {
		b.running.Done()
		b.timer = nil
	}
	b.mu.Unlock()
	b.running.Wait()
}
