package limiter

import (
	"context"
	"github.com/headgate/headgate/core"
	"sync"
	"time"
)

const (
	// maxArrears bounds how many leases are kept in mind that could not be
	// released. What is beyond ends with the lease's Period.
	maxArrears = 4096

	// Between two attempts there is at least firstPause, and at most lastPause.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// arrears are leases that a request has left behind because the store failed at
// its end. They are released later: to do so twice does no harm. A timer sees to
// it, which runs only while there are any.
type arrears struct {
	mu    sync.Mutex
	owed  []arrear
	pause time.Duration
	busy  bool // the timer runs
}

// arrear is an op that ends a lease, and the instant at which it ends anyway.
type arrear struct {
	op    core.Op
	until time.Time
}

// owe has the leases among ops, which all failed to be undone, released later.
func (l *Limiter) owe(ops []core.Op) {
	a := &l.arrears
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, op := range ops {
		if op.Lease != "" && len(a.owed) < maxArrears {
			a.owed = append(a.owed, arrear{op, now.Add(op.Limit.Period)})
		}
	}
	if len(a.owed) > 0 && !a.busy {
		a.busy, a.pause = true, firstPause
		time.AfterFunc(a.pause, l.settleArrears)
	}
}

// settleArrears tries each lease once, until the store fails again.
func (l *Limiter) settleArrears() {
	for !l.isClosed() {
		op, ok := l.arrears.next(time.Now())
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(l.life, tidyTimeout)
		err := l.apply(ctx, []core.Op{op}, make([]core.Decision, 1))
		cancel()
		if err != nil {
			l.arrears.again(l.settleArrears)
			return
		}
		l.arrears.settled()
	}
}

// next returns the oldest that is still held, or stops the timer.
func (a *arrears) next(now time.Time) (op core.Op, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.owed) > 0 && !a.owed[0].until.After(now) {
		a.drop()
	}
	if len(a.owed) == 0 {
		a.busy, a.owed = false, nil
		return core.Op{}, false
	}
	return a.owed[0].op, true
}

func (a *arrears) settled() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop()
}

func (a *arrears) drop() {
	a.owed[0] = arrear{}
	a.owed = a.owed[1:]
}

func (a *arrears) again(settle func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pause = min(2*a.pause, lastPause)
	time.AfterFunc(a.pause, settle)
}
