package failover

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// chores does something again and again as long as there is more to do, never
// twice at a time. Between two turns there is a timer and no goroutine.
type chores struct {
	do    func(context.Context) (more bool)
	pause func() time.Duration
	life  context.Context
	end   context.CancelFunc
	born  time.Time
	due   atomic.Int64 // the next turn begins so many nanoseconds after born

	mu      sync.Mutex
	timer   *time.Timer // nil unless one is set or its turn runs
	asked   bool        // for one more turn while one runs
	running sync.WaitGroup
}

func newChores(do func(context.Context) bool, pause func() time.Duration) *chores {
	c := &chores{do: do, pause: pause, born: time.Now()}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// arm has a turn begin after a pause, unless one is to come anyway. One that
// runs now does not count: it may have missed what there is to do.
func (c *chores) arm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = true
	if c.timer == nil {
		c.set()
	}
}

// set is called with the lock held.
func (c *chores) set() {
	if c.life.Err() != nil {
		return
	}
	d := c.pause()
	c.running.Add(1)
	c.due.Store(int64(time.Since(c.born) + d))
	c.timer = time.AfterFunc(d, c.turn)
}

func (c *chores) turn() {
	defer c.running.Done()
	c.mu.Lock()
	c.asked = false
	c.mu.Unlock()
	more := c.do(c.life)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = nil
	if more || c.asked {
		c.set()
	}
}

// wait is how long until the next turn begins.
func (c *chores) wait() time.Duration {
	return max(0, time.Duration(c.due.Load())-time.Since(c.born))
}

// close ends everything, and waits for a turn that runs.
func (c *chores) close() {
	c.end()
	c.mu.Lock()
	if c.timer != nil && c.timer.Stop() {
		c.running.Done()
		c.timer = nil
	}
	c.mu.Unlock()
	c.running.Wait()
}
