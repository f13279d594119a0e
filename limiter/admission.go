package limiter

import (
	"context"
	"errors"
	"github.com/headgate/headgate/core"
	"sync/atomic"
	"time"
)

// Outcome is what becomes of a request.
type Outcome uint8

const (
	Pass    Outcome = iota // the handler answers
	Refused                // over a limit: 429
	Failed                 // nobody could decide, and the limiter fails closed: 503
)

// String returns "pass", "refused" or "failed".
func (o Outcome) String() string {
	switch o {
	case Pass:
		return "pass"
	case Refused:
		return "refused"
	case Failed:
		return "failed"
	}
	return "unknown outcome"
}

// Status is the HTTP status that the outcome calls for: 429, 503, or 0 when the
// handler decides.
func (o Outcome) Status() int {
	switch o {
	case Refused:
		return 429
	case Failed:
		return 503
	}
	return 0
}

// Admission is what a [Limiter] says about one request, for the adapter that
// asked. It is not safe for concurrent use, but what [FromContext] returns is,
// for Degraded and Result. It must not be used after Done unless NeedsContext is
// true. Degraded and Result may be called on nil.
type Admission struct {
	result   Result
	ctx      context.Context
	outer    *Admission // the one before in the context
	renewal  renewal
	fields   []field
	text     []byte
	body     []byte
	headers  []Header
	order    []int
	rendered bool
}

// Admit decides about a request; it waits if rules say so. Whoever calls it
// calls Done on the result exactly once, when the request has been answered.
// CORS preflights pass uncounted. A nil Limiter fails closed.
func (l *Limiter) Admit(r core.Request) *Admission {
	if l == nil {
		a := &Admission{}
		a.result.err = errNoLimiter
		return a
	}
	a := l.newAdmission()
	res := &a.result
	res.begin(l)
	if isPreflight(r) {
		res.allowed = true
		return a
	}
	l.diagnoseOnce()
	a.ctx = r.Context()
	err := res.addRequest(r)
	if err == nil && res.set.setup.on.Load() {
		l.checkSetup(r, res)
	}
	if err == nil {
		err = res.decide(a.ctx, res.set.patient)
	}
	res.conclude(a.ctx, err)
	if res.holdsLeases() {
		a.renewal.start(a.ctx, res)
	}
	return a
}

var errNoLimiter = errors.New("headgate: the limiter is nil")

// isPreflight tells whether a browser asks for leave to ask.
func isPreflight(r core.Request) bool {
	return r.Method() == "OPTIONS" && len(r.Header("Origin")) > 0 &&
		len(r.Header("Access-Control-Request-Method")) > 0
}

// Outcome tells who answers the request.
func (a *Admission) Outcome() Outcome { return a.result.outcome() }

// Degraded tells that the request passes although it is over the limit of a
// Degrade rule, of this limiter or of one around it: answer it cheaply.
func (a *Admission) Degraded() bool {
	return a != nil && (a.result.Degraded() || a.outer.Degraded())
}

// Result is what the rules decided.
func (a *Admission) Result() *Result {
	if a == nil {
		return nil
	}
	return &a.result
}

// Violated returns the names of the rules that refused the request.
func (a *Admission) Violated() []string { return a.result.Violated() }

// RetryAfter is the Retry-After of the answer in seconds, rounded up: at least
// 1 for a refusal, and 0 if there is none because the request passes or will
// never be let in.
func (a *Admission) RetryAfter() int64 {
	switch a.Outcome() {
	case Failed:
		return max(1, wholeSeconds(retryAfter(a.result.err)))
	case Refused:
		if d := a.result.RetryAfter(); d != core.Never {
			return max(1, wholeSeconds(d))
		}
	}
	return 0
}

// wholeSeconds is d in seconds, rounded up.
func wholeSeconds(d time.Duration) int64 {
	return int64(d/time.Second) + min(1, int64(d%time.Second))
}

// NeedsContext tells that the handler may want to know of the admission, so
// that the adapter is to put it into the request's context.
func (a *Admission) NeedsContext() bool {
	return a.result.allowed && (a.result.degraded || a.result.lease != "")
}

// NeedsStatus tells that Done has to be told the true status.
func (a *Admission) NeedsStatus() bool {
	if !a.result.mayRefund() {
		return false
	}
	for i := range a.result.calls {
		if a.result.calls[i].rule.RefundIf != nil && a.result.charged(i) {
			return true
		}
	}
	return false
}

// HoldsLeases tells that the request holds units until it ends. A connection
// that outlives it goes through [Admission.HoldConn].
func (a *Admission) HoldsLeases() bool { return a.result.holdsLeases() }

// Done ends the request, which was answered with status: it releases leases
// and gives back units as the rules say. Errors go to Config.OnError.
func (a *Admission) Done(status int) {
	l := a.result.limiter
	if l == nil {
		return
	}
	if a.result.lease != "" || a.result.mayRefund() {
		a.end(status)
	}
	if !a.NeedsContext() {
		a.recycle(l)
	}
}

// end gives back what was only lent.
func (a *Admission) end(status int) {
	holding := a.renewal.end()
	if a.result.allowed {
		a.result.end(a.ctx, status, holding)
	}
}

func (l *Limiter) newAdmission() *Admission {
	if a, ok := l.admissions.Get().(*Admission); ok {
		return a
	}
	return &Admission{}
}

// recycle keeps the room that the admission has used for another, and nothing
// of the request.
func (a *Admission) recycle(l *Limiter) {
	a.result.recycle()
	a.ctx, a.outer, a.rendered = nil, nil, false
	clear(a.headers)
	if l.customHeaders != nil {
		clear(a.fields)
	}
	a.fields, a.text, a.headers, a.order = a.fields[:0], a.text[:0], a.headers[:0], a.order[:0]
	l.admissions.Put(a)
}

func (res *Result) recycle() {
	ops := res.ops[:cap(res.ops)]
	for i := range ops {
		ops[i].Key, ops[i].Lease = "", ""
	}
	clear(res.selected)
	res.calls, res.ops, res.out, res.selected = res.calls[:0], res.ops[:0], res.out[:0], res.selected[:0]
	res.limiter, res.set, res.err, res.stopped, res.skipped = nil, nil, nil, nil, nil
	res.allowed, res.degraded, res.waited, res.aged, res.lease = false, false, 0, 0, ""
	unset(&res.refunded)
	unset(&res.released)
}

// unset spares the store, which costs more than all else here.
func unset(b *atomic.Bool) {
	if b.Load() {
		b.Store(false)
	}
}
