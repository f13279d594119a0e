// This file renews leases, and releases those that could not be released in time.

package limiter

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// renewal keeps the leases of a request from expiring for as long as it lasts,
// so that their Period matters only when the process dies or the store is away. It is a
// timer, which ends with Done, or with the connection that outlives it.
type renewal struct {
	mu     sync.Mutex
	timer  *time.Timer             // nil when the renewal has ended
	cancel context.CancelCauseFunc // of the handler's context, or nil
	lost   error                   // why that context is to be canceled, or nil
	held   bool                    // by a connection

	// These are set by start, and then used only by renew.
	ctx     context.Context
	result  *course
	every   time.Duration
	renewed time.Time // no later than the instant at which the store last renewed
	failure error     // of the last attempt, or nil
}

const (
	// renewals is how many times in a Period a lease is renewed.
	renewals = 3

	// minTTL is the shortest Period of a lease, however fast the store is: on a busy
	// machine timers run late by some ten milliseconds.
	minTTL = 100 * time.Millisecond
)

// shortestTTL returns the shortest Period for which leases can be held in a store whose calls
// take at most maxCall. After a renewal that took so long, the next one still comes in time.
func shortestTTL(maxCall time.Duration) time.Duration { return max(minTTL, renewals*maxCall) }

// checkTTL returns an error if the leases of a limit would end between two renewals.
func checkTTL(l *core.Limit, shortest time.Duration) error {
	if !l.Leased() || l.Period < time.Millisecond || l.Period >= shortest {
		return nil
	}
	return fmt.Errorf("ttl %s is below %s, so a lease could end before the store has renewed it",
		textform.Duration(l.Period), textform.Duration(shortest))
}

func (r *renewal) start(ctx context.Context, res *course) {
	every := core.MaxPeriod
	for i := range res.asked {
		if res.leased(i) {
			every = min(every, res.ops[i].Limit.Period/renewals)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx, r.result, r.every, r.renewed = ctx, res, every, res.leasesAsked
	r.timer = time.AfterFunc(min(every, r.untilFirstEnds(time.Now())), r.renew)
}

// renew renews the leases, and notes which of them have ended. A lease that has ended is
// taken anew if there is room.
func (r *renewal) renew() {
	res, start := r.result, time.Now()
	r.recordEnds(start)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), min(cleanupTimeout, r.untilFirstEnds(start)))
	defer cancel()

	held, taken, err := res.renew(ctx)
	res.engine.report(ctx, err)

	if r.failure = err; held || len(taken) > 0 {
		r.recordEnds(time.Now()) // another may have held the units until this renewal
		r.renewed = start
		for i := range res.asked {
			switch {
			case slices.Contains(taken, i):
				r.reportLost(i, errTaken)
			case time.Now().Before(r.endOf(i)):
				atomic.StoreUint32(&res.calls[i].leaseLost, 0)
			}
		}
	}

	// The end of the request stops the timer, and then no renewal follows.
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Reset(min(r.every, r.untilFirstEnds(time.Now())))
	}
}

// untilFirstEnds returns the time until the first lease ends that is not lost, and at least 0.
func (r *renewal) untilFirstEnds(now time.Time) time.Duration {
	left := core.MaxPeriod
	if r.result.released.Load() {
		return left
	}
	for i := range r.result.asked {
		if r.result.leased(i) && !r.result.calls[i].isLeaseLost() {
			left = min(left, r.endOf(i).Sub(now))
		}
	}
	return max(0, left)
}

// endOf returns the instant at which the lease of op i ends, or an earlier one.
func (r *renewal) endOf(i int) time.Time { return r.renewed.Add(r.result.ops[i].Limit.Period) }

// recordEnds records the leases that may have ended by now.
func (r *renewal) recordEnds(now time.Time) {
	for i := range r.result.asked {
		if r.result.leased(i) && !now.Before(r.endOf(i)) {
			r.reportLost(i, cmp.Or(r.failure, errNotRenewed))
		}
	}
}

// reportLost reports that the lease of op i has ended, unless it did so before or was released.
// It ends the handler's context, except for a rule that refuses no request.
func (r *renewal) reportLost(i int, cause error) {
	c := &r.result.calls[i]
	if c.isLeaseLost() || r.result.released.Load() {
		return
	}

	atomic.StoreUint32(&c.leaseLost, 1)
	err := c.rule.ruleError(fmt.Errorf("%w: %w", ErrLeaseLost, cause))

	// Once the request is over, its handler cannot act on the loss.
	r.mu.Lock()
	ended := r.timer == nil
	if !ended && !c.rule.OnLimit.soft() {
		r.lost = cmp.Or(r.lost, err)
		if r.cancel != nil {
			r.cancel(r.lost)
		}
	}
	r.mu.Unlock()
	if !ended {
		r.result.engine.report(context.WithoutCancel(r.ctx), err)
	}
}

// handlerContext returns a context for the handler, which ends when a lease is lost or the
// renewal ends.
func (r *renewal) handlerContext(ctx context.Context) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer == nil {
		return ctx
	}
	ctx, r.cancel = context.WithCancelCause(ctx)
	if r.lost != nil {
		r.cancel(r.lost)
	}
	return ctx
}

// end ends the renewal, unless a connection still holds the leases.
func (r *renewal) end() (holding bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held {
		r.stop()
	}
	return r.held
}

func (r *renewal) stop() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if r.cancel != nil {
		r.cancel(nil)
		r.cancel = nil
	}
}

// heldConn releases the leases of a request when it is closed.
type heldConn struct {
	net.Conn
	admission *Admission
	release   sync.Once
}

// NetConn returns the connection underneath, as [crypto/tls.Conn] does.
func (h *heldConn) NetConn() net.Conn { return h.Conn }

// Close closes the connection and releases the leases.
func (h *heldConn) Close() error {
	err := h.Conn.Close()
	h.release.Do(h.admission.releaseLater)
	return err
}

// leaseSource makes lease ids: 128 unpredictable bits in hex. A ChaCha8 keyed by the
// system's randomness needs no system call for each id.
type leaseSource struct {
	mu      sync.Mutex
	chacha8 *rand.ChaCha8
}

func newLeaseSource() *leaseSource {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails, as its contract says
	return &leaseSource{chacha8: rand.NewChaCha8(seed)}
}

func (l *leaseSource) next() string {
	var id [16]byte
	l.mu.Lock()
	_, _ = l.chacha8.Read(id[:]) // never fails either
	l.mu.Unlock()
	return hex.EncodeToString(id[:])
}

const (
	// maxReleases is the maximum number of queued leases. Any further lease ends
	// with its Period.
	maxReleases = 4096

	// Between two attempts there is at least minReleasePause, and at most maxReleasePause.
	minReleasePause = 100 * time.Millisecond
	maxReleasePause = 5 * time.Second
)

// releaseQueue holds leases that could not be released at the end of their requests
// because the store failed. A timer releases them later, and runs only while the queue
// holds leases. It is harmless to release a lease twice.
type releaseQueue struct {
	mu     sync.Mutex
	queued []queuedRelease
	pause  time.Duration
	busy   bool // the timer runs
}

// queuedRelease is an op that ends a lease, and the instant at which it ends anyway.
type queuedRelease struct {
	op    core.Op
	until time.Time
}

// next returns the oldest lease that has not expired, or notes that the timer stops.
func (r *releaseQueue) next(now time.Time) (op core.Op, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queued) > 0 && !r.queued[0].until.After(now) {
		r.drop()
	}
	if len(r.queued) == 0 {
		r.busy, r.queued = false, nil
		return core.Op{}, false
	}
	return r.queued[0].op, true
}

func (r *releaseQueue) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop()
}

func (r *releaseQueue) drop() {
	r.queued[0] = queuedRelease{}
	r.queued = r.queued[1:]
}

func (r *releaseQueue) retry(run func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause = min(2*r.pause, maxReleasePause)
	time.AfterFunc(r.pause, run)
}
