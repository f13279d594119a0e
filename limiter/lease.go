// This file renews leases, and releases those that could not be released in time.

package limiter

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
)

// renewal keeps the leases of a request from expiring for as long as it lasts,
// so that their Period matters only when the process dies. It is a timer, which
// ends with Done, or with the connection that outlives it.
type renewal struct {
	mu     sync.Mutex
	timer  *time.Timer
	every  time.Duration
	ctx    context.Context
	result *Result
	held   bool // by a connection
}

// renewals is how many times in a Period a lease is renewed.
const renewals = 3

func (r *renewal) start(ctx context.Context, res *Result) {
	every := core.MaxPeriod
	for i := range res.ops {
		if res.leased(i) {
			every = min(every, res.ops[i].Limit.Period/renewals)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx, r.result, r.every = ctx, res, every
	r.timer = time.AfterFunc(every, r.renew)
}

func (r *renewal) renew() {
	ctx, cancel := cleanupContext(r.ctx)
	defer cancel()
	_, err := r.result.Renew(ctx)
	r.result.limiter.report(ctx, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Reset(r.every)
	}
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
}

// heldConn releases the leases of a request when it is closed.
type heldConn struct {
	net.Conn
	admission *Admission
	release   sync.Once
}

// NetConn returns the connection underneath, as [crypto/tls.Conn] does.
func (c *heldConn) NetConn() net.Conn { return c.Conn }

// Close closes the connection and releases the leases.
func (c *heldConn) Close() error {
	err := c.Conn.Close()
	c.release.Do(c.admission.releaseLater)
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

func (s *leaseSource) next() string {
	var id [16]byte
	s.mu.Lock()
	_, _ = s.chacha8.Read(id[:]) // never fails either
	s.mu.Unlock()
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
func (q *releaseQueue) next(now time.Time) (op core.Op, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queued) > 0 && !q.queued[0].until.After(now) {
		q.drop()
	}
	if len(q.queued) == 0 {
		q.busy, q.queued = false, nil
		return core.Op{}, false
	}
	return q.queued[0].op, true
}

func (q *releaseQueue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop()
}

func (q *releaseQueue) drop() {
	q.queued[0] = queuedRelease{}
	q.queued = q.queued[1:]
}

func (q *releaseQueue) retry(run func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pause = min(2*q.pause, maxReleasePause)
	time.AfterFunc(q.pause, run)
}
