package limiter

import (
	"context"
	"github.com/headgate/headgate/core"
	"time"
)

// minPause keeps a store that names no time to come back from being asked in a
// tight loop.
const minPause = time.Millisecond

// decide has the store decide, and waits if it may.
func (g *Grant) decide(ctx context.Context, patient bool) error {
	if !patient {
		return g.ask(ctx)
	}
	w := wait{start: time.Now(), most: core.MaxBooking}
	if deadline, ok := ctx.Deadline(); ok {
		// A turn at the very deadline would come too late.
		w.most = min(w.most, deadline.Sub(w.start)-time.Microsecond)
	}
	defer w.leave(g.limiter)
	for {
		if again, err := w.turn(ctx, g); !again {
			return err
		}
	}
}

// wait is one request's way through the queue.
type wait struct {
	start  time.Time
	most   time.Duration // until the context's deadline
	waited time.Duration
	place  place
	queued bool
}

// turn asks the store once and waits for what it says. again means that the
// store has to be asked once more.
func (w *wait) turn(ctx context.Context, g *Grant) (again bool, err error) {
	w.book(g)
	if err := g.ask(ctx); err != nil {
		return false, err
	}
	pause, at := w.pause(g)
	if pause == 0 {
		return false, nil
	}
	booked := g.allowed
	if !w.enter(g.limiter, at) {
		if booked {
			g.giveUp(ctx)
		}
		return false, nil
	}
	g.stopped = g.limiter.sleep(ctx, pause)
	w.waited = time.Since(w.start)
	g.waited = w.waited
	switch {
	case g.stopped != nil && booked:
		g.giveUp(ctx)
		return false, nil
	case g.stopped != nil:
		return false, nil
	case booked:
		g.arrive(pause)
		return false, g.renewAfterWait(ctx)
	}
	return true, nil
}

// left is how long the request may still wait for rule i.
func (w *wait) left(g *Grant, i int) time.Duration {
	if g.ops[i].Soft || g.calls[i].patience == 0 {
		return 0
	}
	return max(0, min(w.most, g.calls[i].patience)-w.waited)
}

// book lets the store book slots where the request may wait for them.
func (w *wait) book(g *Grant) {
	for i := range g.ops {
		op := &g.ops[i]
		op.MaxWait = w.left(g, i)
		if op.MaxWait > 0 && !w.queued && g.limiter.turnsAway(place{op.Rule, op.Key}) {
			op.MaxWait = 0
		}
	}
}

// pause is how long to wait now, and where: 0 if there is nothing to wait for,
// or if it would take too long.
func (w *wait) pause(g *Grant) (longest time.Duration, at place) {
	for i := range g.ops {
		d := &g.out[i]
		span := d.Wait
		if !g.allowed {
			if g.ops[i].Soft || d.Allowed {
				continue
			}
			if span = max(d.RetryAfter, minPause); span > w.left(g, i) {
				return 0, place{}
			}
		}
		if span > longest {
			longest, at = span, place{g.ops[i].Rule, g.ops[i].Key}
		}
	}
	return longest, at
}

// enter takes a place in the queue for the whole wait.
func (w *wait) enter(l *Limiter, p place) bool {
	if w.queued {
		return true
	}
	if l.isClosed() || !l.queue.enter(p) {
		return false
	}
	w.place, w.queued = p, true
	return true
}

func (w *wait) leave(l *Limiter) {
	if w.queued {
		l.queue.leave(w.place)
	}
}

// arrive marks the booked slots as reached.
func (g *Grant) arrive(pause time.Duration) {
	g.aged = pause
	for i := range g.out {
		g.out[i].Wait = 0
	}
}

// renewAfterWait makes sure of leases that had to last through a wait.
func (g *Grant) renewAfterWait(ctx context.Context) error {
	if !g.holdsLeases() {
		return nil
	}
	held, err := g.Renew(ctx)
	if err != nil || held {
		return err
	}
	g.giveUp(ctx)
	for i := range g.ops {
		if d := &g.out[i]; g.ops[i].Lease != "" {
			d.Allowed, d.RetryAfter = false, g.ops[i].Limit.Period
		}
	}
	return nil
}

// sleep waits for d. The error says what ended it before.
func (l *Limiter) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.life.Done():
		return ErrClosed
	}
}

func (l *Limiter) isClosed() bool { return l.life.Err() != nil }

// turnsAway tells that nobody may begin to wait at p.
func (l *Limiter) turnsAway(p place) bool { return l.isClosed() || l.queue.full(p) }
