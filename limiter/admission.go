package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

// Outcome is what the limiter does with a request.
type Outcome uint8

const (
	Pass      Outcome = iota // the handler answers
	Refused                  // over a limit: 429; or denied, see [Result.Denied]
	Failed                   // the store could not decide, and the limiter fails closed: 503
	QueueFull                // would have to wait, and as many wait as may: 503, or Config.QueueFullStatus
)

// String returns "pass", "refused", "failed" or "queue_full".
func (o Outcome) String() string {
	switch o {
	case Pass:
		return "pass"
	case Refused:
		return "refused"
	case Failed:
		return "failed"
	case QueueFull:
		return "queue_full"
	}
	return "unknown outcome"
}

// The statuses of answers.
const (
	forbidden         = 403
	tooManyRequests   = 429
	unavailableStatus = 503
)

// Admission is what a [Limiter] says about one request, for the adapter that
// asked. It is not safe for concurrent use, and must not be used after Done.
// Handlers use its Result; see [FromContext].
type Admission struct {
	result  Result
	ctx     context.Context
	renewal renewal
	fields  []field
	text    []byte
	body    []byte
	headers []Header
	order   []int
	around  *around // nil unless other limiters have written headers

	parts     []part // of a request in parts
	partCalls []int  // ids of calls

	rendered bool
}

var errNoLimiter = errors.New("headgate: the limiter is nil")

// isPreflight reports whether r is a CORS preflight request.
func isPreflight(r core.Request) bool {
	return r.Method() == "OPTIONS" && len(r.Header("Origin")) > 0 &&
		len(r.Header("Access-Control-Request-Method")) > 0
}

// Outcome returns what the limiter does with the request.
func (a *Admission) Outcome() Outcome {
	switch v := a.result.verdict; {
	case v.Passes():
		return Pass
	case v == events.QueueFull:
		return QueueFull
	case a.result.err != nil:
		return Failed
	}
	return Refused
}

// Status returns the HTTP status that the answer of the limiter has: 429, 503, that of a
// denial, or 0 when the handler answers. It is 503 too for a request that costs more than this
// instance's part of a limit, while the fallback of the store decides. An adapter calls the
// handler for 0, the program's own handler for failed requests for 503, and that for refused
// ones for any other.
func (a *Admission) Status() int {
	switch a.Outcome() {
	case Pass:
		return 0
	case QueueFull:
		return cmp.Or(a.result.limiter.queueFullStatus, unavailableStatus)
	case Failed:
		return unavailableStatus
	}
	if a.result.denied {
		return cmp.Or(a.result.calls[0].rule.DenyStatus, forbidden)
	}
	if a.result.awaitsStore() {
		return unavailableStatus
	}
	return tooManyRequests
}

// Degraded returns [Result.Degraded] of the result.
func (a *Admission) Degraded() bool { return a.result.Degraded() }

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
	n := a.ownRetryAfter()
	if n > 0 && a.around != nil {
		n = max(n, a.around.retryAfter)
	}
	return n
}

func (a *Admission) ownRetryAfter() int64 {
	switch a.Outcome() {
	case Failed:
		return max(1, wholeSeconds(retryAfter(a.result.err)))
	case Refused:
		if d := a.result.RetryAfter(); d != core.Never {
			return max(1, wholeSeconds(d))
		}
	case QueueFull:
		return max(1, wholeSeconds(a.result.knownWait()))
	}
	return 0
}

// wholeSeconds returns d in seconds, rounded up.
func wholeSeconds(d time.Duration) int64 {
	return int64(d/time.Second) + min(1, int64(d%time.Second))
}

// NeedsContext reports whether the handler may ask for the result, so that the
// adapter has to put it into the request's context with [NewContext].
func (a *Admission) NeedsContext() bool {
	res := &a.result
	return res.allowed && (res.degraded || res.lease != "" || res.limiter.keepResult)
}

// NeedsStatus reports whether Done needs the true status.
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

// HoldsLeases reports whether the request holds units until it ends. A connection
// that outlives it goes through [Admission.HoldConn].
func (a *Admission) HoldsLeases() bool { return a.result.HoldsLeases() }

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
	l := a.result.limiter
	if l == nil {
		return
	}
	if status >= 500 {
		status = a.Unanswered(status)
	}
	holding := a.result.lease != "" && a.renewal.end()
	kept := a.NeedsContext()
	if kept && !holding {
		a.result.ended.Store(true)
	}
	if a.result.allowed && (a.result.lease != "" || a.result.mayRefund() || a.result.settlement.Load() != nil) {
		a.result.end(a.ctx, status, holding)
	}
	if kept {
		a.handOnBuffers(l)
	} else {
		a.recycle(l)
	}
}

// recycle keeps the memory of the admission for another one, without any data of
// the request.
func (a *Admission) recycle(l *Limiter) {
	a.result.recycle()
	a.ctx, a.around, a.rendered = nil, nil, false
	a.emptyBuffers(l)
	l.admissions.Put(a)
}

// handOnBuffers keeps the buffers of the admission for another one, but not the
// admission itself, because the handler may still refer to its result.
func (a *Admission) handOnBuffers(l *Limiter) {
	next := &Admission{fields: a.fields, text: a.text, body: a.body, headers: a.headers, order: a.order}
	a.fields, a.text, a.body, a.headers, a.order = nil, nil, nil, nil, nil
	next.result.pooled, next.result.record, a.result.record = true, a.result.record, nil
	next.emptyBuffers(l)
	l.admissions.Put(next)
}

// emptyBuffers removes all data of the request from the buffers.
func (a *Admission) emptyBuffers(l *Limiter) {
	clear(a.headers)
	if l.customHeaders != nil {
		clear(a.fields)
	}
	a.fields, a.text, a.headers, a.order = a.fields[:0], a.text[:0], a.headers[:0], a.order[:0]
	a.parts, a.partCalls = a.parts[:0], a.partCalls[:0]
}

// unset makes b false. It writes only if b is true, because an atomic write is the most
// expensive part of recycling.
func unset(b *atomic.Bool) {
	if b.Load() {
		b.Store(false)
	}
}

type contextKey struct{}

// NewContext returns a context that carries the result of a, for [FromContext].
// Adapters call it once for an admission whose NeedsContext is true. Under
// Config.CancelOnLostLease the context ends when a lease of the request is lost.
func NewContext(ctx context.Context, a *Admission) context.Context {
	a.result.outer = FromContext(ctx)
	if l := a.result.limiter; l != nil && l.cancelOnLost {
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

// ProblemType is the Content-Type of [Admission.Problem].
const ProblemType = "application/problem+json"

// Problem returns the body of a refusal or a failure (RFC 9457). It names rules and
// numbers, and nothing that the client sent. It is nil for a request that
// passes.
func (a *Admission) Problem() []byte {
	if a.Outcome() == Pass {
		return nil
	}
	return a.appendProblem(make([]byte, 0, 320))
}

func (a *Admission) appendProblem(b []byte) []byte {
	switch a.Outcome() {
	case Failed:
		return append(b, unavailable...)
	case QueueFull:
		return a.appendQueueFull(b)
	}
	if a.result.denied {
		return a.appendDenied(b)
	}
	if a.result.awaitsStore() {
		return append(b, storeAway...)
	}
	return a.appendRefusal(b)
}

// Answer returns the answer that the client gets instead of the handler's. A template of
// the [Config] makes it, and it always has a status. ok is false if the handler answers.
// The answer is valid until Done, and its headers are sent in
// addition to those of the limiter.
func (a *Admission) Answer() (answer Answer, ok bool) {
	outcome := a.Outcome()
	if t := a.template(outcome); t != nil {
		if answer, ok := a.fill(t); ok {
			return answer, true
		}
	}
	if outcome == Pass {
		return Answer{}, false
	}
	a.body = a.appendProblem(a.body[:0]) // as ProblemJSON, without an allocation
	return Answer{a.Status(), problemHeaders, a.body}, true
}

// fill returns the answer of a template, unless that panics.
func (a *Admission) fill(t Template) (answer Answer, ok bool) {
	defer func() {
		if v := recover(); v != nil {
			a.result.limiter.report(a.ctx, fmt.Errorf("a template of an answer: %w", panicked(v)))
		}
	}()

	answer = t(a)
	if answer.Status < minFinalStatus || answer.Status > maxStatus {
		answer.Status = cmp.Or(a.Status(), 200)
	}
	return answer, true
}

// The statuses that an answer may have: final, and of three digits.
const (
	minFinalStatus = 200
	maxStatus      = 999
)

// problemHeaders are those of [ProblemJSON].
var problemHeaders = []Header{{"Content-Type", ProblemType}}

// template returns the template of the Config for the outcome, or nil.
func (a *Admission) template(outcome Outcome) Template {
	l := a.result.limiter
	if l == nil {
		return nil
	}
	switch {
	case outcome == Pass:
	case a.Status() == unavailableStatus:
		return l.failed
	default:
		return l.refused
	}
	if a.result.degraded {
		return l.degraded
	}
	return nil
}

const unavailable = `{"type":"about:blank","title":"Service Unavailable","status":503}`

// storeAway is the problem of a request that costs more than this instance's part.
const storeAway = `{"type":"about:blank","title":"Service Unavailable","status":503,` +
	`"detail":"The store of the counts is away, and this server alone cannot admit as much at once."}`

// The problem types that draft-ietf-httpapi-ratelimit-headers registers for a refusal, with
// their titles.
const (
	quotaExceeded = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded"`
	abnormalUsage = `{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected",` +
		`"title":"Request not satisfied due to detection of abnormal request pattern"`
)

// appendRefusal writes the problem of a limit or a ban. Rule names need no escapes.
func (a *Admission) appendRefusal(b []byte) []byte {
	kind := quotaExceeded
	if a.result.Banned() {
		kind = abnormalUsage
	}
	b = append(append(b, kind...), `,"status":429,"detail":"`...)
	b = a.appendDetail(b)
	b = a.appendViolated(append(b, `","violated-policies":`...))
	return append(b, '}')
}

// appendQueueFull writes the problem type that the same draft registers for a capacity
// that is exhausted for a while.
func (a *Admission) appendQueueFull(b []byte) []byte {
	b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",`+
		`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":`...)
	b = strconv.AppendInt(b, int64(a.Status()), 10)
	b = a.appendDetail(append(b, `,"detail":"`...))
	b = a.appendViolated(append(b, `","violated-policies":`...))
	return append(b, '}')
}

// appendViolated writes a JSON list of the rules that refused the request.
func (a *Admission) appendViolated(b []byte) []byte {
	res, comma := &a.result, ""
	b = append(b, '[')
	for i := range res.asked {
		if res.violates(i) {
			b = append(append(b, comma...), '"')
			b = append(append(b, res.calls[i].rule.Name...), '"')
			comma = ","
		}
	}
	return append(b, ']')
}

// SetHeaders puts [Admission.Headers] into h, which may be a
// [net/http.Header]. If other limiters have put their headers and a mark there, the headers
// of all are merged; see [Admission.Merge].
func (a *Admission) SetHeaders(h map[string][]string) {
	if len(h) > 0 && a.around == nil {
		a.mergeFrom(h)
	}
	a.render()
	if n := len(a.fields); n > 0 {
		values := make([]string, n)
		text, from := string(a.text), 0
		for i, f := range a.fields {
			values[i], from = text[from:f.end], f.end
			h[f.name] = values[i : i+1 : i+1]
		}
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
	a.render()
	if len(a.headers) < len(a.fields) {
		text, from := string(a.text), 0
		for _, f := range a.fields {
			a.headers = append(a.headers, Header{f.name, text[from:f.end]})
			from = f.end
		}
	}
	return a.headers
}

// EachHeader calls set with each of [Admission.Headers], for adapters whose
// framework copies values. A value is valid only during the call.
func (a *Admission) EachHeader(set func(name string, value []byte)) {
	a.render()
	from := 0
	for _, f := range a.fields {
		set(f.name, a.text[from:f.end:f.end])
		from = f.end
	}
}

// field is a header. Its value is the part of the buffer from the end of the
// previous field to end.
type field struct {
	name string
	end  int
}

// render writes all values into one buffer.
func (a *Admission) render() {
	if a.rendered {
		return
	}
	a.rendered = true
	res := &a.result
	outcome := a.Outcome()
	if outcome != Pass {
		if n := a.RetryAfter(); n > 0 {
			a.text = strconv.AppendInt(a.text, n, 10)
			a.cut("Retry-After")
		}
		a.fixed("Cache-Control", "no-store")
	}
	if res.denied {
		return // no count was read
	}
	if res.limiter == nil || res.limiter.headers == NoHeaders && res.limiter.customHeaders == nil {
		return
	}
	if outcome == QueueFull {
		return // what is left under the limits is not why
	}
	if a.rank(); len(a.order) == 0 {
		return
	}
	style := res.limiter.headers
	if style&(XRateLimit|XRateLimitDelta) != 0 && (a.around == nil || a.isScarcerThan(a.around.shown)) {
		a.xRateLimit(style)
	}
	if style&Draft8 != 0 {
		a.draft8()
	}
	if res.limiter.customHeaders != nil {
		a.custom()
	}
}

// fixed adds a header with the value.
func (a *Admission) fixed(name, value string) {
	a.text = append(a.text, value...)
	a.cut(name)
}

// cut ends the value of a header in the buffer.
func (a *Admission) cut(name string) {
	a.fields = append(a.fields, field{name, len(a.text)})
}

// rank puts the rules that clients may see in order, the most exhausted first.
func (a *Admission) rank() {
	res := &a.result
	for i := range res.asked {
		if res.calls[i].rule.OnLimit == Shadow {
			continue
		}
		a.order = append(a.order, i)
		for j := len(a.order) - 1; j > 0 && res.scarcer(a.order[j], a.order[j-1]); j-- {
			a.order[j], a.order[j-1] = a.order[j-1], a.order[j]
		}
	}
	if res.inParts {
		a.order = a.firstOfRules(a.order)
	}
}

// firstOfRules removes all calls of a rule but the first from the order.
func (a *Admission) firstOfRules(order []int) []int {
	kept := order[:0]
	for _, i := range order {
		r := a.result.calls[i].rule
		if !slices.ContainsFunc(kept, func(j int) bool { return a.result.calls[j].rule == r }) {
			kept = append(kept, i)
		}
	}
	return kept
}

// fullAfter returns the time until the key may use its whole limit, which is not before a
// ban ends.
func fullAfter(d *core.Decision) time.Duration {
	if d.Banned {
		return max(d.ResetAfter, d.RetryAfter)
	}
	return d.ResetAfter
}

func (a *Admission) xRateLimit(style HeaderStyle) {
	i := a.order[0]
	d := a.result.decision(i)
	a.fixed("X-Ratelimit-Limit", a.result.calls[i].terms.capacity)
	a.text = strconv.AppendInt(a.text, d.Remaining, 10)
	a.cut("X-Ratelimit-Remaining")
	after := fullAfter(&d)
	reset := wholeSeconds(after)
	if style&XRateLimit != 0 {
		reset = wholeSeconds(time.Duration(d.At%1e6)*time.Microsecond+after) + d.At/1e6
	}
	a.text = strconv.AppendInt(a.text, reset, 10)
	a.cut("X-Ratelimit-Reset")
}

func (a *Admission) draft8() {
	res, from := &a.result, len(a.text)
	if res.usesOwnLimits(len(a.order)) {
		a.text = append(a.text, res.set.policy...)
	} else {
		comma := ""
		for i := range res.asked {
			if slices.Contains(a.order, i) {
				a.text = append(append(a.text, comma...), res.calls[i].terms.policy...)
				comma = ", "
			}
		}
	}
	if a.around != nil {
		a.mergeList(from, a.around.policies, false)
	}
	a.cut("Ratelimit-Policy")
	comma, from := "", len(a.text)
	for _, i := range a.order {
		a.text = append(a.text, comma...)
		a.text = res.appendRemaining(a.text, i)
		comma = ", "
	}
	if a.around != nil {
		a.mergeList(from, a.around.rateLimit, true)
	}
	a.cut("Ratelimit")
}

// oneLine replaces line breaks, which would end the header that a value is in.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// custom adds the headers of the program's own function.
func (a *Admission) custom() {
	l := a.result.limiter
	defer func() {
		if v := recover(); v != nil {
			l.report(a.ctx, panicked(v))
		}
	}()
	list := make([]RuleDecision, len(a.order))
	for n, i := range a.order {
		list[n] = a.result.ruleDecision(i)
	}
	for _, h := range l.customHeaders(list) {
		a.fixed(textproto.CanonicalMIMEHeaderKey(h.Name), oneLine.Replace(h.Value))
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

// appendDetail writes the sentence about when to try again.
func (a *Admission) appendDetail(b []byte) []byte {
	seconds := a.RetryAfter()
	if a.Outcome() == QueueFull {
		b = append(b, "Too many requests wait already. "...)
	}
	if seconds == 0 {
		return append(b, "The request asks for more than the quota can ever hold."...)
	}
	b = strconv.AppendInt(append(b, "Retry after "...), seconds, 10)
	if seconds == 1 {
		return append(b, " second."...)
	}
	return append(b, " seconds."...)
}
