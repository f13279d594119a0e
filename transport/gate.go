package transport

import (
	"container/list"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// After a refusal that says nothing else, one more request may be under way after each
	// oneMoreAfter waits of that length. After trustAfter it is forgotten.
	oneMoreAfter = 10
	trustAfter   = 60

	// jitterPart is the largest part of a wait that is added to it, and maxJitter the longest.
	jitterPart = 64
	maxJitter  = 10 * time.Second

	// Refusals that do not say how long to wait close a gate for this time, or for that over
	// GitHub's secondary limit. It doubles with each in a row, up to 64 times.
	backoff          = time.Second
	secondaryBackoff = time.Minute
	maxDoublings     = 6
)

// gate lets the requests of one key pass, as far as the server's answers allow.
//
// It knows a number of quotas, and an instant before which nothing passes. A generation begins
// where that knowledge ends: when the gate closes, and when a quota that was used up is over.
// Its first requests find out anew.
//
//	                   answers without a refusal
//	one at a time ----------------------------------> more with each second or answer
//	   ^     ^                                                 |
//	   |     |  it has reset                                   | no units are left of a quota
//	   |     +-------------------- used up <-------------------+
//	   |
//	   |  opensAt has come
//	   +-------------------- closed <-------------------- a refusal, in any state
//
// While it is closed nothing passes before opensAt, and while a quota is used up nothing before
// its until. Requests that cannot wait that long are refused at once; the others wait in queue,
// and the timer is set for the first of them.
type gate struct {
	key        string
	spread     bool
	refs       int   // guarded by the table
	prev, next *gate // of those without refs; guarded by the table

	mu         sync.Mutex // guards what follows
	quotas     []quota
	lastPassed time.Time // when a request has passed

	opensAt        time.Time     // nothing passes before
	closedFor      time.Duration // the wait until then
	refusals       int           // in a row
	generation     uint64
	underWay       int       // requests of the generation that are under way
	underWayBefore int       // the same of the one before
	passed         int       // requests of the generation that the server did not refuse
	firstSent      time.Time // when the first request of the generation has passed
	wary           bool      // the server may refuse requests and say no more than Retry-After
	learned        int       // how many such a server is likely to answer after the wait
	abreast        int       // how many of them may be under way together, 0 after a wrong guess

	ended uint64 // requests that were sent and are under way no longer

	queue  list.List // of *waiter
	timer  *time.Timer
	cutoff time.Time // all waiters can wait until then
}

// quota is what the server says is left of one limit.
type quota struct {
	name   string
	left   int64
	until  time.Time     // when it resets, or later
	every  time.Duration // between two requests, so that those left last until then; for Spread
	lowest int64         // that was said since no request was under way

	generation uint64 // that was current when the server said it
}

// pass lets one request be sent.
type pass struct {
	generation uint64
	ended      uint64 // gate.ended when the request was sent
}

// waiter is a request that waits for its turn.
type waiter struct {
	latest time.Time
	ready  chan struct{} // closed when it has passed or was refused
	passed bool
	pass   pass
	place  *list.Element // nil when it has left the queue
}

// newGate returns an open gate, of which nothing is known. It copies the key.
func newGate(key string, spread bool) *gate {
	return &gate{key: strings.Clone(key), spread: spread}
}

// enter lets a request pass, or returns a waiter, with which leave has to be called. If the gate
// is closed beyond latest, it returns no waiter and for how long at least.
func (g *gate) enter(now, latest time.Time) (p pass, passed bool, w *waiter, closed time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.expireLocked(now)
	if g.queue.Len() == 0 && !g.dueLocked(now).After(now) {
		return g.letPassLocked(now), true, nil, 0
	}

	// Where the gate is known to stay closed for too long, the wait would be in vain.
	if at := g.earliestLocked(now, g.queue.Len()); at.After(latest) {
		return pass{}, false, nil, at.Sub(now)
	}

	if latest.Before(g.cutoff) {
		g.cutoff = latest
	}
	w = &waiter{latest: latest, ready: make(chan struct{})}
	w.place = g.queue.PushBack(w)
	g.dispatchLocked(now)
	return pass{}, false, w, 0
}

// leave ends the wait of w. If it has not passed, closed is how long the gate is closed at
// least, as far as is known.
func (g *gate) leave(w *waiter, now time.Time) (p pass, passed bool, closed time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dispatchLocked(now) // its turn may come at this very instant
	if w.place != nil {
		g.removeLocked(w.place)
		g.dispatchLocked(now)
	}

	if w.passed {
		return w.pass, true, 0
	}
	return pass{}, false, max(0, g.earliestLocked(now, g.queue.Len()).Sub(now))
}

// startSending notes that a request that has passed is sent now. It returns false if the gate has
// been closed since. Then the request must not be sent, and cancel has to be called.
func (g *gate) startSending(p *pass, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opensAt.After(now) {
		return false
	}
	p.ended = g.ended
	return true
}

// cancel takes back that a request has passed, before startSending or after it has returned false.
func (g *gate) cancel(p pass) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for i := range g.quotas {
		if q := &g.quotas[i]; q.generation <= p.generation+1 { // a later one does not count the request
			q.left++
		}
	}
	g.endLocked(p)
	g.dispatchLocked(now)
}

// lost notes that a request was sent and got no answer. It may have been counted.
func (g *gate) lost(p pass) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endLocked(p)
	g.ended++
	g.dispatchLocked(time.Now())
}

// answered notes what the answer to a request says. It returns how long the gate is closed if
// the answer is a refusal.
func (g *gate) answered(p pass, r *report, now time.Time) (closed time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.expireLocked(now)
	ofNow := p.generation == g.generation
	g.endLocked(p)

	// Only then does the request count as ended: the others that have ended since it was sent are
	// those that the server may not have counted.
	g.learnLocked(p, r, now)
	g.ended++

	switch {
	case r.refusal != none:
		g.closeLocked(r, ofNow, now)
		closed = g.opensAt.Sub(now)
	case ofNow && !r.open:
		// Answers to requests of a generation that is over say nothing about this one.
		g.passed++
		g.refusals = 0
		if g.wary && now.Sub(g.opensAt) > trustAfter*g.closedFor {
			g.wary = false
			g.newGenerationLocked() // as many as are due by now would be refused together
		}
	}

	// What was learned may make waits too long, or end them.
	g.refuseLateLocked(now)
	g.dispatchLocked(now)
	return closed
}

// secondary notes that the body of an answer names GitHub's secondary limit.
func (g *gate) secondary(p pass, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closeLocked(&report{refusal: secondary}, p.generation == g.generation, now)
	g.refuseLateLocked(now)
	g.dispatchLocked(now)
}

// endLocked notes that a request is under way no longer.
func (g *gate) endLocked(p pass) {
	switch p.generation {
	case g.generation:
		g.underWay--
	case g.generation - 1:
		g.underWayBefore--
	}
}

// learnLocked takes over the quotas of an answer. The order in which the server has counted
// requests is not known. It may have counted those that are under way, or not yet, and also those
// that have ended since this one was sent. So what it has left has a lower and an upper bound, and
// what was known before stays if it lies between them. When no request is under way, the lowest
// number is that of the request that was counted last.
func (g *gate) learnLocked(p pass, r *report, now time.Time) {
	under := int64(g.underWay + g.underWayBefore)
	for _, stated := range r.quotas[:r.n] {
		if r.refusal != none && stated.left == 0 {
			g.dropLocked(stated.name) // the wait of the refusal counts
			continue
		}

		q := g.quotaLocked(stated.name)
		q.lowest = min(q.lowest, stated.left)
		most := stated.left - under
		least := most - int64(g.ended-p.ended)
		if q.left = max(0, min(most, max(q.left, least))); under == 0 {
			q.left, q.lowest = q.lowest, math.MaxInt64
		}

		q.until = now.Add(stated.after + jitter(stated.after))
		q.every = stated.after / time.Duration(stated.left+1)
		q.generation = g.generation
	}
}

// quotaLocked returns the quota of a name, a new one in the place of that with the most units if
// there are too many.
func (g *gate) quotaLocked(name string) *quota {
	most := 0
	for i := range g.quotas {
		if g.quotas[i].name == name {
			return &g.quotas[i]
		}
		if g.quotas[i].left > g.quotas[most].left {
			most = i
		}
	}

	if len(g.quotas) < maxQuotas {
		most = len(g.quotas)
		g.quotas = append(g.quotas, quota{})
	}

	// The name is part of the header, which would stay in memory with it.
	g.quotas[most] = quota{name: strings.Clone(name), lowest: math.MaxInt64}
	return &g.quotas[most]
}

// dropLocked forgets a quota.
func (g *gate) dropLocked(name string) {
	g.quotas = slices.DeleteFunc(g.quotas, func(q quota) bool { return q.name == name })
}

// closeLocked closes the gate after a refusal. first is whether the request was sent in the present
// generation, so that no other of it was refused before. Refusals of requests that were sent
// earlier can only keep the gate closed for longer.
func (g *gate) closeLocked(r *report, first bool, now time.Time) {
	if first {
		g.refusals++
	}

	// A refusal that does not say how long to wait is followed by longer and longer ones.
	wait := r.wait
	if wait == 0 {
		unit := backoff
		if r.refusal == secondary {
			unit = secondaryBackoff
		}
		wait = unit << min(max(0, g.refusals-1), maxDoublings)
	}

	// Only the first says how many requests the server admits.
	if first {
		g.estimateLocked(r, wait, now)
		g.closedFor = wait
		g.newGenerationLocked()
	}

	if at := now.Add(wait + jitter(wait)); at.After(g.opensAt) {
		g.opensAt = at
	}
}

// estimateLocked sets how many requests are likely to come through when the gate opens: as many as
// in the time of the wait, at the rate since the gate last closed. A server may give units back
// otherwise, such as one by one at the times at which they were taken. So with each wait one more
// of them may be under way, until one of them is refused.
func (g *gate) estimateLocked(r *report, wait time.Duration, now time.Time) {
	// A server that says what is left needs no guess.
	if silent := r.refusal == limited && r.n == 0 && len(g.quotas) == 0; !silent {
		g.wary = false
		return
	}

	// The first refusal of its kind, so nothing is known of the rate yet.
	elapsed := g.closedFor + now.Sub(g.opensAt)
	if !g.wary || elapsed <= 0 {
		g.wary, g.learned, g.abreast = true, 0, 1
		return
	}

	switch {
	case g.passed < g.learned:
		g.abreast = 0
	case g.abreast > 0:
		g.abreast++
	}

	g.learned = int(float64(g.passed) * min(1, float64(wait)/float64(elapsed)))
}

// newGenerationLocked begins a generation.
func (g *gate) newGenerationLocked() {
	g.generation++
	g.underWayBefore, g.underWay, g.passed, g.firstSent = g.underWay, 0, 0, time.Time{}
}

// expireLocked drops the quotas that are used up and over. The others stay: their next window has
// no fewer units than are left of the last.
func (g *gate) expireLocked(now time.Time) {
	n := len(g.quotas)
	g.quotas = slices.DeleteFunc(g.quotas, func(q quota) bool { return q.left <= 0 && !q.until.After(now) })
	if len(g.quotas) < n {
		g.newGenerationLocked()
	}
}

// maxUnderWayLocked returns how many requests may be under way without a quota that bounds them.
// In the first second of a generation that is one. The number doubles with each second, because
// answers may take long, and is an eighth of those that were answered, if that is more. After
// refusals that say nothing else it is one, but more among those that are likely to come through.
func (g *gate) maxUnderWayLocked(now time.Time) int {
	doubled := 1 << min(g.secondsLocked(now), 20)
	switch {
	case g.passed == 0 || doubled == 1 && !g.wary:
		return doubled
	case g.wary:
		return max(min(g.abreast, g.learned-g.passed), 1+int(now.Sub(g.opensAt)/(oneMoreAfter*g.closedFor)))
	}
	return max(doubled, 1+g.passed/8)
}

// secondsLocked returns for how many whole seconds the generation has sent requests.
func (g *gate) secondsLocked(now time.Time) int {
	if g.firstSent.IsZero() {
		return 0
	}
	return int(now.Sub(g.firstSent) / time.Second)
}

// earliestLocked returns an instant before which no request passes that has ahead others before
// it, as far as is known, and now if there is none.
func (g *gate) earliestLocked(now time.Time, ahead int) time.Time {
	at := now
	if g.opensAt.After(at) {
		at = g.opensAt
	}

	for i := range g.quotas {
		q := &g.quotas[i]

		// Units are left for this request and those before it, so it passes at once or, if they are
		// spread, in its turn. Otherwise it waits until the quota resets.
		turn := q.until
		if q.left > int64(ahead) {
			turn = at
			if g.spread {
				turn = g.lastPassed.Add(time.Duration(ahead+1) * q.every)
			}
		}

		if turn.After(at) {
			at = turn
		}
	}
	return at
}

// dueLocked returns when the first request of the queue passes if no answer comes before, and now
// or earlier if it passes at once.
func (g *gate) dueLocked(now time.Time) time.Time {
	at := g.earliestLocked(now, 0)
	if at.After(now) || len(g.quotas) > 0 && g.passed > 0 || g.underWay < g.maxUnderWayLocked(now) {
		return at
	}
	return g.firstSent.Add(time.Duration(g.secondsLocked(now)+1) * time.Second)
}

// letPassLocked lets a request pass.
func (g *gate) letPassLocked(now time.Time) pass {
	if g.firstSent.IsZero() {
		g.firstSent = now
	}
	g.underWay++
	g.lastPassed = now
	for i := range g.quotas {
		g.quotas[i].left--
	}
	return pass{generation: g.generation}
}

// dispatchLocked lets those pass whose turn has come, in the order of arrival.
func (g *gate) dispatchLocked(now time.Time) {
	for first := g.queue.Front(); first != nil; first = g.queue.Front() {
		g.expireLocked(now)

		// One timer is enough: no other passes before the first.
		if at := g.dueLocked(now); at.After(now) {
			g.wakeAfterLocked(at.Sub(now))
			return
		}

		w := g.removeLocked(first)
		w.pass, w.passed = g.letPassLocked(now), true
	}

	if g.timer != nil {
		g.timer.Stop()
	}
}

// wakeAfterLocked has dispatch called after d.
func (g *gate) wakeAfterLocked(d time.Duration) {
	if g.timer == nil {
		g.timer = time.AfterFunc(d, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.dispatchLocked(time.Now())
		})
		return
	}
	g.timer.Reset(d)
}

// refuseLateLocked ends the waits that would be too long.
func (g *gate) refuseLateLocked(now time.Time) {
	// All waiters can wait until the cutoff, and the queue may be long.
	at := g.earliestLocked(now, 0)
	if !at.After(g.cutoff) {
		return
	}

	g.cutoff = at
	for e := g.queue.Front(); e != nil; {
		w := e.Value.(*waiter)
		next := e.Next()
		if at.After(w.latest) {
			g.removeLocked(e)
		}
		e = next
	}
}

// removeLocked takes a waiter out of the queue and wakes it.
func (g *gate) removeLocked(e *list.Element) *waiter {
	w := g.queue.Remove(e).(*waiter)
	w.place = nil
	close(w.ready)
	return w
}

// opens returns when the gate opens, now or earlier if it is open.
func (g *gate) opens(now time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.earliestLocked(now, 0)
}

// jitter returns a random part of a wait, to be added to it, so that the clients of a server do
// not all come back at the same instant. Nothing is ever taken off.
var jitter = func(wait time.Duration) time.Duration {
	return rand.N(min(wait/jitterPart, maxJitter) + 1)
}
