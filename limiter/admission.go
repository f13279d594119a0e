package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/headgate/headgate/core"
)

// Admission is what a [Limiter] says about one request, for the adapter that
// asked. It is not safe for concurrent use, and must not be used after Done.
// Handlers use its Result; see [FromContext].
type Admission struct {
	limiter *Limiter // nil without one
	result  Result
	course  course // of the result
	pooled  pooled // of the course
	ctx     context.Context
	renewal renewal
	headers headers
	body    []byte

	parts     []callRange // of a request in parts
	partCalls []int       // ids of calls
}

// emptyAdmission returns an admission of no request.
func emptyAdmission() *Admission {
	a := &Admission{}
	a.result.course, a.course.pooled, a.headers.res = &a.course, &a.pooled, &a.result
	return a
}

// Outcome returns what the limiter does with the request.
func (a *Admission) Outcome() Outcome { return a.result.outcome }

// isPreflight reports whether r is a CORS preflight request.
func isPreflight(r core.Request) bool {
	return r.Method() == "OPTIONS" && len(r.Header("Origin")) > 0 &&
		len(r.Header("Access-Control-Request-Method")) > 0
}

// Status returns the HTTP status that the answer of the limiter has: 429, 503, that of a
// denial, or 0 when the handler answers. It is 503 too for a request that costs more than this
// instance's part of a limit, while the fallback of the store decides. An adapter calls the
// handler for 0, the program's own handler for failed requests for 503, and that for refused
// ones for any other.
func (a *Admission) Status() int { return int(a.result.status) }

// Degraded returns [Result.Degraded] of the result.
func (a *Admission) Degraded() bool {
	return (a.result.degraded || a.pooled.outer != nil) && a.result.Degraded()
}

// Result returns what the rules decided. The result must not be used after Done unless
// NeedsContext is true.
func (a *Admission) Result() *Result { return &a.result }

// Violated returns the names of the rules that refused the request.
func (a *Admission) Violated() []string { return a.result.Violated() }

// RetryAfter returns the Retry-After of the answer in seconds, rounded up. It is at
// least 1 for a refusal or a failure, and 0 for a request that passes, that is denied or
// that can never be admitted, or not before the store is back. Where the queue for leases is
// full it is 1, as they may be released at any time.
func (a *Admission) RetryAfter() int64 {
	if a.headers.rendered || a.headers.retryAfter > 0 {
		return a.headers.retryAfter
	}
	return a.headers.mergedRetryAfter()
}

// NeedsContext reports whether the handler may ask for the result, so that the
// adapter has to put it into the request's context with [NewContext].
func (a *Admission) NeedsContext() bool {
	res := &a.result
	return res.allowed && (res.degraded || res.lease != "" || a.limiter.keepResult)
}

// NeedsStatus reports whether Done needs the true status.
func (a *Admission) NeedsStatus() bool {
	return a.result.mayRefund() && (a.refundsIf() || a.NeedsAnswer())
}

// refundsIf reports whether a rule that has charged the request has a RefundIf.
func (a *Admission) refundsIf() bool {
	for i := range a.result.asked {
		if a.result.calls[i].rule.RefundIf != nil && a.result.charged(i) {
			return true
		}
	}
	return false
}

// NeedsAnswer reports whether a Rule.Charge settles the request by its answer, so that the
// adapter has to call See and Answered. NeedsStatus is true then.
func (a *Admission) NeedsAnswer() bool { return a.result.allowed && len(a.result.rare.read().used) > 0 }

// NeedsUsage reports whether a rule that settles the request reads the body of its answer.
func (a *Admission) NeedsUsage() bool {
	for _, u := range a.result.rare.read().used {
		if u.rule.ReadsUsage && a.result.allowed {
			return true
		}
	}
	return false
}

// See tells where the adapter sees the answer. Status, Charged and Ended of seen are not read.
func (a *Admission) See(seen Seen) {
	if a.NeedsAnswer() {
		u := a.result.rare.write()
		u.seen.Header, u.seen.Usage = seen.Header, seen.Usage
	}
}

// Answered says that the handler has returned. Its answer is then whole, unless the client has left
// before. An adapter calls it before Done, and not after a panic.
func (a *Admission) Answered() {
	if a.NeedsAnswer() {
		a.result.rare.write().seen.Ended = a.ctx.Err() == nil
	}
}

// HoldsLeases reports whether the request holds units until it ends. A connection
// that outlives it goes through [Admission.HoldConn].
func (a *Admission) HoldsLeases() bool { return a.course.lease != "" && a.course.holdsGranted() }

// StatusClientLeft is what RefundIf gets instead of the status of an answer if the client had
// left before there was one: the handler returned or panicked without an answer, or answered
// with a status from 500 on, as proxies do when the request that they pass on ends with its
// client. It is 499, by which nginx logs this. It shows only where the request's context ends
// when its client leaves, as that of net/http does and that of Fiber does not.
const StatusClientLeft = 499

// Unanswered returns the status of a request whose handler has returned without an answer:
// StatusClientLeft if the client has left, and status otherwise.
func (a *Admission) Unanswered(status int) int {
	if a.ctx != nil && errors.Is(a.ctx.Err(), context.Canceled) {
		return StatusClientLeft
	}
	return status
}

// Done ends the request, which was answered with status, of which [StatusClientLeft] takes the
// place where the client has left: it settles what the handler has
// reported, gives back units as the rules say, and releases leases, in one step. Unless the
// store is in memory, a step that gives back no units for the status is made in the
// background, so that the answer does not wait: leases are free a round trip later, and
// [Limiter.Close] waits for that. Errors go to Config.OnError.
func (a *Admission) Done(status int) {
	l := a.limiter
	if l == nil {
		return
	}

	// A proxy answers 502 to a client that has left: that is the client's doing, not the handler's.
	if status >= 500 {
		status = a.Unanswered(status)
	}

	// A connection that the handler has taken over holds the leases beyond this end.
	holding := a.result.lease != "" && a.renewal.end()
	kept := a.NeedsContext()
	if kept && !holding {
		a.result.ended.Store(true)
	}

	// Most requests are charged for good, and have nothing to give back.
	if a.result.allowed && (a.result.lease != "" || a.result.mayRefund() || a.result.settlement.Load() != nil) {
		a.result.end(a.ctx, status, holding)
	}

	// A handler may keep its context, and so the result, for longer than the request lasts.
	if kept {
		a.handOnBuffers(l)
	} else {
		a.recycle(l)
	}
}

// recycle keeps the memory of the admission for another one, without any data of
// the request.
func (a *Admission) recycle(l *Limiter) {
	a.headers.empty()
	a.result.recycle()
	a.limiter, a.ctx = nil, nil
	a.parts, a.partCalls = a.parts[:0], a.partCalls[:0]
	l.admissions.Put(a)
}

// handOnBuffers keeps the buffers of the admission for another one, but not the
// admission itself, because the handler may still refer to its result.
func (a *Admission) handOnBuffers(l *Limiter) {
	a.headers.empty()
	next := emptyAdmission()
	next.headers, next.body = a.headers, a.body
	next.headers.res = &next.result
	next.pooled.record, a.pooled.record = a.pooled.record, nil
	a.headers, a.body = headers{}, nil
	l.admissions.Put(next)
}

type contextKey struct{}

// NewContext returns a context that carries the result of a, for [FromContext].
// Adapters call it once for an admission whose NeedsContext is true. Under
// Config.CancelOnLostLease the context ends when a lease of the request is lost.
func NewContext(ctx context.Context, a *Admission) context.Context {
	if outer := FromContext(ctx); outer != nil {
		a.pooled.outer = outer.course
	}
	if l := a.limiter; l != nil && l.cancelOnLost {
		ctx = a.renewal.handlerContext(ctx)
	}
	return context.WithValue(ctx, contextKey{}, &a.result)
}

// ContextValue returns the key and the value under which [FromContext] finds the result of
// a in a context. It is for adapters of frameworks whose contexts get values by a method,
// and is called after [NewContext].
func (a *Admission) ContextValue() (key, value any) { return contextKey{}, &a.result }

// FromContext returns what the innermost limiter around a handler decided about
// the request of ctx. It returns nil, which is valid as an empty Result, unless the
// request holds leases or is degraded, or Config.KeepResult is set.
func FromContext(ctx context.Context) *Result {
	res, _ := ctx.Value(contextKey{}).(*Result)
	return res
}

// Degraded reports whether the request of ctx passes although it is over the
// limit of a Degrade rule, so the handler should answer it cheaply.
func Degraded(ctx context.Context) bool { return FromContext(ctx).Degraded() }

// Problem returns the body of a refusal or a failure (RFC 9457). It names rules and
// numbers, and nothing that the client sent. It is nil for a request that
// passes.
func (a *Admission) Problem() []byte {
	if a.Outcome() == Pass {
		return nil
	}
	p := a.problem()
	return p.append(make([]byte, 0, 320))
}

// Answer returns the answer that the client gets instead of the handler's. A template of
// the [Config] makes it, and it always has a status. ok is false if the handler answers.
// The answer is valid until Done, and its headers are sent in
// addition to those of the limiter.
func (a *Admission) Answer() (answer Answer, ok bool) {
	if a.limiter != nil {
		if t := a.limiter.template(&a.result); t != nil {
			if answer, ok := a.fill(t); ok {
				return answer, true
			}
		}
	}

	if a.Outcome() == Pass {
		return Answer{}, false
	}

	// This is ProblemJSON, without its allocation.
	p := a.problem()
	a.body = p.append(a.body[:0])
	return Answer{a.Status(), problemHeaders, a.body}, true
}

func (a *Admission) problem() problem {
	return problem{&a.result, a.RetryAfter(), a.headers.retryAfterText()}
}

// fill returns the answer of a template, unless that panics.
func (a *Admission) fill(t Template) (answer Answer, ok bool) {
	defer func() {
		if v := recover(); v != nil {
			a.limiter.report(a.ctx, fmt.Errorf("a template of an answer: %w", panicked(v)))
		}
	}()

	answer = t(a)
	if answer.Status < minFinalStatus || answer.Status > maxStatus {
		answer.Status = cmp.Or(a.Status(), 200)
	}
	return answer, true
}

// SetHeaders puts [Admission.Headers] into h, which may be a
// [net/http.Header]. If other limiters have put their headers and a mark there, the headers
// of all are merged; see [Admission.Merge].
func (a *Admission) SetHeaders(h map[string][]string) {
	if len(h) == 0 && a.sendsNone() {
		return
	}
	if len(h) > 0 && a.headers.around == nil && !a.headers.rendered {
		a.headers.mergeFrom(h)
	}
	a.headers.render(a.ctx)
	a.headers.put(h)
}

// sendsNone reports whether the limiter has no headers for the answer to a request that passes.
func (a *Admission) sendsNone() bool {
	return a.limiter != nil && a.limiter.headers == NoHeaders && a.limiter.customHeaders == nil &&
		a.course.outcome == Pass
}

// SetAnswerHeaders puts the headers of an answer of a into h, which may be a [net/http.Header].
func (a *Admission) SetAnswerHeaders(h map[string][]string, answer Answer) {
	for i := range answer.Headers {
		value := a.headers.values.take(1)
		value[0] = answer.Headers[i].Value
		h[answer.Headers[i].Name] = value
	}
}

// LeaveMark leaves a mark in the header map h that a request which passes has been counted;
// see [Limiter.Counted]. It is called after [Admission.SetHeaders]. The mark is an entry with
// an empty list of values, of which the servers of net/http make no header. Where another
// server, or a program, reads the map, [Admission.Mark] is for another place.
func (a *Admission) LeaveMark(h map[string][]string) { h[markName] = a.Mark().values[:0] }

// Headers returns the headers of the answer, whichever handler writes it. The
// most exhausted rule comes first, and the X-RateLimit headers describe only that
// rule. The slice is valid until Done.
func (a *Admission) Headers() []Header {
	a.headers.render(a.ctx)
	return a.headers.asText()
}

// EachHeader calls set with each of [Admission.Headers], for adapters whose
// framework copies values. A value is valid only during the call.
func (a *Admission) EachHeader(set func(name string, value []byte)) {
	h, from := &a.headers, 0
	h.render(a.ctx)
	for _, f := range h.fields {
		set(f.name.text, h.text[from:f.end:f.end])
		from = f.end
	}
}

// SetCanonical sets each of [Admission.Headers] in an answer that copies bytes, such as the header
// of a response of fasthttp. The answer must not write to them.
func (a *Admission) SetCanonical(answer canonical) {
	h, from := &a.headers, 0
	if h.isPlain() {
		h.setPlain(answer)
		return
	}

	h.render(a.ctx)
	text := h.text
	for _, f := range h.fields {
		answer.SetCanonical(f.name.bytes, text[from:f.end])
		from = f.end
	}
}

// HoldConn returns a connection that works as c, which the handler has taken
// over, and keeps the leases of the request until it is closed. A Settle of
// the handler is carried out then too. Without leases it returns c itself.
func (a *Admission) HoldConn(c net.Conn) net.Conn {
	if !a.HoldsLeases() {
		return c
	}

	a.renewal.mu.Lock()
	defer a.renewal.mu.Unlock()
	a.renewal.held = true
	return &heldConn{Conn: c, admission: a}
}

func (a *Admission) releaseLater() {
	a.renewal.mu.Lock()
	a.renewal.stop()
	a.renewal.mu.Unlock()
	a.result.releaseLater(a.ctx)
}
