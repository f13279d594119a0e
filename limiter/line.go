// This file puts requests that wait for leases in a line for each key.

package limiter

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

const (
	// pollPause is the time between two questions about the leases of a key that other
	// processes may hold. Releases in this process need no question.
	pollPause = 50 * time.Millisecond

	// drainMargin is how long before the deadline of a Shutdown requests stop waiting for
	// leases, so that their answers are not cut off. No store can say when a lease is
	// released.
	drainMargin = 100 * time.Millisecond
)

// line is the requests that wait for leases of one key, the oldest first. Only the
// first asks the store. It is guarded by the lock of the queue.
type line struct {
	requests []*inLine
	free     bool      // units may have come back since the first last asked
	due      time.Time // when the first asks if no units come back before
}

// inLine is a request in a line.
type inLine struct {
	arrival uint64        // its number in the order of arrival
	wake    chan struct{} // receives when due of the line may have changed for the request
}

// call makes the first request of the line look when it is due.
func (n *line) call() {
	select {
	case n.requests[0].wake <- struct{}{}:
	default: // it will look
	}
}

// lines are the lines of a limiter.
type lines struct {
	of       map[waitKey]*line
	arrivals uint64

	// interested is the number of requests that may wait for leases. If there are none, a
	// release costs one atomic load more.
	interested atomic.Int64

	// released counts the releases, apart by the hash of the key. A request that is about
	// to join a line compares it with the count before its question: a release between
	// its answer and its place in the line would wake no request.
	released [64]atomic.Uint64
	seed     maphash.Seed
}

func (s *lines) counter(k waitKey) *atomic.Uint64 {
	return &s.released[maphash.Comparable(s.seed, k)%uint64(len(s.released))]
}

// noteReleases makes the first request of each line ask whose units have come back by
// the ops, which the store has carried out.
func (q *waitQueue) noteReleases(ops []core.Op) {
	if q.lines.interested.Load() == 0 {
		return
	}
	for i := range ops {
		if !ops[i].Limit.Leased() {
			continue
		}
		k := waitKey{ops[i].Rule, ops[i].Key}
		q.lines.counter(k).Add(1)
		q.mu.Lock()
		if n := q.lines.of[k]; n != nil {
			n.free = true
			n.call()
		}
		q.mu.Unlock()
	}
}

// place is what a request that may wait for leases knows about its line.
type place struct {
	key      waitKey // of the line that it is in
	in       *inLine // nil if it is in none
	arrival  uint64  // 0 before the first question
	released uint64  // the releases of its keys before the last question
	asked    bool    // the last question was a Take
	left     bool    // by the last answer the key has units left, or the store failed
	due      time.Time
	answered time.Time // when the last answer came
	draining <-chan struct{}
	drained  time.Time // when to stop waiting because of a Shutdown; zero if never
}

// ask lets the store decide. If others have waited longer for one of the leases, it
// only peeks: the request may have to be refused at once for another reason.
func (w *wait) ask(ctx context.Context, res *Result) error {
	if res.lease == "" || !w.wantsLease(res) {
		return res.ask(ctx)
	}
	w.arrive(res)
	if w.isBehind(res) {
		if behind, err := w.peek(ctx, res); behind || err != nil {
			return err
		}
		if res.aside > 0 {
			res.takeBack(ctx)
		}
	}
	w.place.asked = true
	return w.question(ctx, res)
}

// wantsLease reports whether the request may wait for a lease.
func (w *wait) wantsLease(res *Result) bool {
	for i := range res.ops {
		if w.waitsForLease(res, i) {
			return true
		}
	}
	return false
}

func (w *wait) waitsForLease(res *Result, i int) bool {
	op := &res.ops[i]
	return op.Limit.Leased() && op.Cost > 0 && w.remaining(res, i) > 0
}

// arrive gives the request its number, and counts the releases of its keys.
func (w *wait) arrive(res *Result) {
	q := &res.limiter.queue
	if w.place.arrival == 0 {
		q.lines.interested.Add(1)
		q.mu.Lock()
		q.lines.arrivals++
		w.place.arrival = q.lines.arrivals
		q.mu.Unlock()
		w.place.draining = q.draining
	}
	w.place.released = w.releases(res)
}

// releases returns a number that changes whenever units of a key that the request waits
// for come back.
func (w *wait) releases(res *Result) (n uint64) {
	for i := range res.ops {
		if w.waitsForLease(res, i) {
			n += res.limiter.queue.lines.counter(waitKey{res.ops[i].Rule, res.ops[i].Key}).Load()
		}
	}
	return n
}

// isBehind reports whether an older request waits for a lease that this one needs.
func (w *wait) isBehind(res *Result) bool {
	for i := range res.ops {
		if w.isBehindAt(res, i) {
			return true
		}
	}
	return false
}

func (w *wait) isBehindAt(res *Result, i int) bool {
	if !w.waitsForLease(res, i) {
		return false
	}
	q := &res.limiter.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lines.of[waitKey{res.ops[i].Rule, res.ops[i].Key}]
	return n != nil && n.requests[0].arrival < w.place.arrival
}

// peek asks the store without taking units. behind reports whether others have waited
// longer for some of the leases. These are refused then, whether or not there is room.
func (w *wait) peek(ctx context.Context, res *Result) (behind bool, err error) {
	setVerbs(res, core.Peek)
	err = w.question(ctx, res)
	setVerbs(res, core.Take)
	w.place.asked = false
	if err != nil {
		return false, err
	}
	res.allowed, res.degraded = false, false
	for i := range res.ops {
		if d := &res.out[i]; w.isBehindAt(res, i) {
			d.Allowed, d.RetryAfter, behind = false, max(d.RetryAfter, minPause), true
		}
	}
	return behind, nil
}

// setVerbs sets the verb of each op, also of those that were set aside.
func setVerbs(res *Result, v core.Verb) {
	ops := res.ops[:len(res.ops)+res.aside]
	for i := range ops {
		ops[i].Verb = v
	}
}

// question asks the store once, and notes what follows for the line.
func (w *wait) question(ctx context.Context, res *Result) error {
	p, q := &w.place, &res.limiter.queue
	if p.in != nil {
		q.mu.Lock()
		if n := q.lines.of[p.key]; n.requests[0] == p.in { // or else an older one has come, and asks
			n.free = false // units that come back from now on may not be in the answer
		}
		q.mu.Unlock()
	}
	p.due = time.Now().Add(pollPause)
	err := res.ask(ctx)
	p.answered = time.Now()
	for i := range res.out {
		if d := &res.out[i]; err == nil && !d.Allowed && res.ops[i].Limit.Leased() && d.RetryAfter < pollPause {
			if expiry := p.answered.Add(max(d.RetryAfter, minPause)); expiry.Before(p.due) {
				p.due = expiry
			}
		}
	}
	if p.in == nil {
		return err
	}
	p.left = err != nil || w.hasLeft(res, p.key)
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.lines.of[p.key]; n.requests[0] == p.in {
		n.due = p.due
	}
	return err
}

// hasLeft reports whether units of the key are left by the last answer.
func (w *wait) hasLeft(res *Result, k waitKey) bool {
	for i := range res.ops {
		if k == (waitKey{res.ops[i].Rule, res.ops[i].Key}) {
			return res.out[i].Remaining > 0
		}
	}
	return true // the store did not decide about it
}

// stand waits in the line for k until the request is the first of it and the store is
// to be asked again, for at most the span. again is false if the wait has ended.
func (w *wait) stand(ctx context.Context, res *Result, k waitKey, span time.Duration) (again bool) {
	q := &res.limiter.queue
	w.join(res, k)
	before := w.waited
	end := w.start.Add(before + span)
	defer func() { res.noteWaited(k.rule, w.waited-before, w.waited) }()
	for {
		last := end
		if !w.place.drained.IsZero() && w.place.drained.Before(last) {
			last = w.place.drained
		}
		due, now := q.dueOf(&w.place, last), time.Now()
		w.waited = now.Sub(w.start)
		switch {
		case due.After(now):
			if res.stopped = w.rest(ctx, res.limiter, due.Sub(now)); res.stopped != nil {
				w.waited = time.Since(w.start)
				return false
			}
		case last.After(now):
			return true
		default:
			if last.Before(end) {
				res.stopped = ErrClosed
			}
			w.age(res, now)
			return false
		}
	}
}

// join puts the request into the line for k, in the order of arrival.
func (w *wait) join(res *Result, k waitKey) {
	if w.place.in != nil && w.place.key == k {
		return
	}
	w.leaveLine(res.limiter)
	q := &res.limiter.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lines.of[k]
	if n == nil {
		k.key = strings.Clone(k.key) // the map may keep it longer than its request lives
		n = &line{due: w.place.due}
		if q.lines.of == nil {
			q.lines.of = map[waitKey]*line{}
		}
		q.lines.of[k] = n
	}
	in := &inLine{w.place.arrival, make(chan struct{}, 1)}
	at := len(n.requests)
	for at > 0 && n.requests[at-1].arrival > in.arrival {
		at--
	}
	n.requests = slices.Insert(n.requests, at, in)
	w.place.in, w.place.key, w.place.left = in, k, w.hasLeft(res, k)
	if at == 0 && (!w.place.asked || w.place.released != w.releases(res)) {
		n.free = true
	}
}

// leaveLine takes the request out of its line, if it is in one. The next request becomes
// the first, and asks at once if there may be units for it.
func (w *wait) leaveLine(l *Limiter) {
	p := &w.place
	if p.in == nil {
		return
	}
	q := &l.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lines.of[p.key]
	at := slices.Index(n.requests, p.in)
	n.requests = slices.Delete(n.requests, at, at+1)
	p.in = nil
	switch {
	case len(n.requests) == 0:
		delete(q.lines.of, p.key)
	case at == 0:
		n.free = n.free || p.left
		n.call()
	}
}

// dueOf returns when the request has to do something: ask the store if it is the first
// of its line, and give up at the end.
func (q *waitQueue) dueOf(p *place, end time.Time) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lines.of[p.key]
	switch {
	case n.requests[0] != p.in:
		return end
	case n.free:
		return time.Time{}
	case n.due.Before(end):
		return n.due
	}
	return end
}

// rest waits for d, or until the request may be due. It returns an error if ctx or the
// limiter ends before.
func (w *wait) rest(ctx context.Context, l *Limiter, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.place.in.wake:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.life.Done():
		return ErrClosed
	case <-w.place.draining:
		w.place.draining = nil
		if deadline := l.queue.deadline; !deadline.IsZero() {
			w.place.drained = deadline.Add(-drainMargin)
		}
	}
	return nil
}

// age makes the decisions of the last answer those of now.
func (w *wait) age(res *Result, now time.Time) {
	res.aged = now.Sub(w.place.answered)
	for i := range res.out {
		if d := &res.out[i]; !d.Allowed && d.RetryAfter != core.Never {
			d.RetryAfter = max(minPause, d.RetryAfter-res.aged)
		}
	}
}
