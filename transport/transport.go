package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// Defaults of [Config], for fields that are 0.
const (
	DefaultMaxWait = time.Minute
	DefaultMaxKeys = 1000
)

// Config configures a [Transport]. Its zero value heeds what servers say.
type Config struct {
	// Base sends the requests. nil means http.DefaultTransport at the time.
	Base http.RoundTripper

	// Limiter, unless nil, has limits of the program's own. Before each request the transport
	// takes one unit of the key under all its rules, or what Cost says, whatever their Key
	// functions say, and waits if it has to. Its MaxWaiters bound how many requests wait for it. A
	// lease of a concurrency limit is held until the body of the answer is read to its end or
	// closed, and is not renewed. If the store cannot decide, OnStoreError of the rules says
	// whether the request is sent.
	Limiter *limiter.Limiter

	// Cost, unless nil, returns what a request costs under the rules of Limiter, by their names: an
	// estimate, if only the answer tells. A rule that it does not name costs 1. A cost above the
	// limit is never admitted, unless the rule has CostAtMost. Cost must be safe for concurrent
	// use, and must not change the request; of its body it may read what GetBody returns.
	Cost func(*http.Request) map[string]int64

	// Settle, unless nil, is called with each answer, before the program gets it, and calls settle
	// when it knows what the request has used. It may replace the body to find out, and must not
	// read it. [SettleTokens] is such a function.
	Settle func(resp *http.Response, settle Settlement)

	// Key returns what a request is counted by. nil means the host and port of its URL, in
	// lower case. Use the credential and the part of the API where a server counts by them. Key
	// must be safe for concurrent use, and must not change the request.
	Key func(*http.Request) string

	// MaxWait is how long a request waits at most, in all; 0 means DefaultMaxWait. With a
	// nanosecond no request waits.
	MaxWait time.Duration

	// Retries is how often a request is sent again after the server has refused it, if it is
	// safe: the status is below 500, so that the request was not carried out, or its method is
	// idempotent, or it has an Idempotency-Key. A request with a body needs
	// GetBody. The wait before is part of MaxWait; if it does not fit, the program gets the
	// answer. 0 means never.
	Retries int

	// Statuses are those of answers that may refuse a request; nil means 403, 420, 429, 503 and
	// 529. Of them a 429 or 529 always does. Another status has other meanings too, so it refuses
	// only with a Retry-After, or below 500 also with a quota that is used up. From 500 on the
	// request may have been carried out. Each is from 400 to 999.
	Statuses []int

	// Pace is how requests use what the server says is left.
	Pace Pace

	// MaxKeys is the number of keys that are remembered while no request uses them; 0 means
	// DefaultMaxKeys. Beyond it the key that was not used for longest is forgotten.
	MaxKeys int

	// Observer, unless nil, is called after each attempt to send a request.
	Observer Observer
}

// Pace is how requests use the units that a server says are left until an instant.
type Pace uint8

const (
	// Burst sends requests at once while units are left, and then waits.
	Burst Pace = iota

	// Spread spaces requests evenly over the time for which the units have to last.
	Spread

	paceEnd
)

// Transport is an [http.RoundTripper] that paces its requests. [New] makes it. It is safe for
// concurrent use.
type Transport struct {
	base     http.RoundTripper
	limiter  *limiter.Limiter
	cost     func(*http.Request) map[string]int64
	settle   func(*http.Response, Settlement)
	key      func(*http.Request) string
	maxWait  time.Duration
	retries  int
	statuses []int
	observer Observer
	gates    table
}

// New returns a transport, or an error that joins all mistakes in c.
func New(c Config) (*Transport, error) {
	if err := errors.Join(c.faults()...); err != nil {
		return nil, err
	}

	t := &Transport{
		base:     c.Base,
		limiter:  c.Limiter,
		cost:     c.Cost,
		settle:   c.Settle,
		key:      c.Key,
		maxWait:  c.MaxWait,
		retries:  c.Retries,
		statuses: slices.Clone(c.Statuses),
		observer: c.Observer,
	}

	if t.key == nil {
		t.key = host
	}
	if t.maxWait == 0 {
		t.maxWait = DefaultMaxWait
	}
	if c.Statuses == nil {
		t.statuses = defaultStatuses
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = DefaultMaxKeys
	}

	t.gates.init(c.MaxKeys, c.Pace == Spread)
	return t, nil
}

// MustNew is [New] for a configuration that is known to be valid. It panics on an error.
func MustNew(c Config) *Transport {
	t, err := New(c)
	if err != nil {
		panic(err)
	}
	return t
}

// faults returns every mistake.
func (c *Config) faults() []error {
	var errs []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}

	fault(holdsNil(c.Base), "the Base is a nil %T; leave it out for http.DefaultTransport", c.Base)
	fault(holdsNil(c.Observer), "the Observer is a nil %T; leave it out for none", c.Observer)
	fault(c.Limiter == nil && (c.Cost != nil || c.Settle != nil), "Cost and Settle need a Limiter")
	fault(c.MaxWait < 0, "MaxWait: %s is negative", c.MaxWait)
	fault(c.Retries < 0, "Retries: %d is negative", c.Retries)
	fault(c.Pace >= paceEnd, "Pace: %d is not known", c.Pace)
	fault(c.MaxKeys < 0, "MaxKeys: %d is negative", c.MaxKeys)
	for _, status := range c.Statuses {
		fault(status < 400 || status > 999, "Statuses: %d is not from 400 to 999", status)
	}
	return errs
}

// holdsNil reports whether v is not nil itself and holds a nil value.
func holdsNil(v any) bool {
	switch value := reflect.ValueOf(v); value.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Chan:
		return value.IsNil()
	}
	return false
}

// host is the Key of a Config without one.
func host(r *http.Request) string {
	if r.URL == nil {
		return ""
	}
	return strings.ToLower(r.URL.Host)
}

// RoundTrip sends a request when its turn has come. The error is a [*LimitedError] if the turn
// comes too late, the cause of the context if that ends before, or the error of Base. An answer
// that refuses the request is an answer, and no error.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchange{t: t, req: req, key: t.key(req)}
	g := t.gates.hold(x.key)
	defer t.gates.release(g)
	x.gate = g

	for {
		resp, err := x.attempt()
		if err != nil || resp == nil || !x.mayRetry() {
			return resp, err
		}
		body, err := x.replay()
		if err != nil {
			return resp, nil // the answer is worth more than the error of GetBody
		}

		resp.Body.Close() // unread: a server could make reading it last
		again := *x.req   // as Request.WithContext copies it
		again.Body = body
		x.req = &again
		x.try++
	}
}

// roundTripper returns the round tripper that sends the requests.
func (t *Transport) roundTripper() http.RoundTripper {
	if t.base == nil {
		return http.DefaultTransport
	}
	return t.base
}

// CloseIdleConnections calls that of Base, if it has one, as [http.Client] does.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.roundTripper().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// exchange is one RoundTrip: a request, and all attempts to send it.
type exchange struct {
	t    *Transport
	req  *http.Request
	gate *gate
	key  string
	try  int

	costs   map[string]int64 // of an attempt, by Config.Cost
	waited  time.Duration    // before all attempts
	refusal refusal          // of the latest answer
}

// latest returns the instant until which the request may wait. The wait for an answer does not
// count.
func (e *exchange) latest(now time.Time) time.Time {
	latest := now.Add(e.t.maxWait - e.waited)
	if d, ok := e.req.Context().Deadline(); ok && d.Before(latest) {
		return d
	}
	return latest
}

// attempt waits for the turn of the request and sends it. The body of the request is closed in
// any case, at last by Base.
func (e *exchange) attempt() (*http.Response, error) {
	if e.t.cost != nil {
		e.costs = e.price()
	}

	waited := e.waited
	pass, own, err := e.admit()
	if err != nil {
		if e.req.Body != nil {
			e.req.Body.Close()
		}
		e.observe(Event{Outcome: notSent(err), Waited: e.waited - waited, RetryAfter: retryAfter(err), Err: err})
		return nil, err
	}

	resp, closed, err := e.send(pass, own)
	if err != nil || resp == nil {
		e.observe(Event{Outcome: Failed, Waited: e.waited - waited, Err: err})
		return resp, err
	}

	// The program may read the body after the context of the request has ended, and the lease has
	// to be given back also then.
	if own.HoldsLeases() {
		ctx := context.WithoutCancel(e.req.Context())
		holdUntilRead(resp, func() { own.Release(ctx) })
	}
	if e.t.settle != nil {
		e.settle(resp, own)
	}

	event := Event{Outcome: Answered, Status: resp.StatusCode, Waited: e.waited - waited}
	if e.refusal != none {
		event.Outcome, event.RetryAfter = Refused, closed
	}
	e.observe(event)
	return resp, nil
}

// price returns what Config.Cost says. The body is closed if that panics. Nothing else is held yet.
func (e *exchange) price() (costs map[string]int64) {
	priced := false
	defer func() {
		if !priced && e.req.Body != nil {
			e.req.Body.Close()
		}
	}()
	costs = e.t.cost(e.req)
	priced = true
	return costs
}

// settle calls Config.Settle. The body is closed if that panics, which ends leases.
func (e *exchange) settle(resp *http.Response, own *limiter.Result) {
	settled := false
	defer func() {
		if !settled {
			resp.Body.Close()
		}
	}()
	e.t.settle(resp, e.settlement(own))
	settled = true
}

// send sends the request and notes what its answer says about limits. If it is a refusal,
// closed is how long no request of the key is sent.
func (e *exchange) send(pass pass, own *limiter.Result) (resp *http.Response, closed time.Duration, err error) {
	// Without an answer the request stays counted, by the server and by the program's own limits,
	// because it may have been carried out. Only its leases end.
	answered := false
	defer func() {
		if !answered { // also after a panic
			e.gate.lost(pass)
			own.Release(context.WithoutCancel(e.req.Context()))
		}
	}()

	if resp, err = e.t.roundTripper().RoundTrip(e.req); err != nil || resp == nil {
		return resp, 0, err
	}

	var r report
	now := time.Now()
	r.read(resp, e.t.statuses, now)
	answered = true
	e.refusal = r.refusal
	closed = e.gate.answered(pass, &r, now)

	// Whether it is a refusal is in the body, which only the program reads.
	if r.open {
		g := e.gate
		resp.Body = &sniffer{ReadCloser: resp.Body, found: func() { g.secondary(pass, time.Now()) }}
	}
	return resp, closed, nil
}

// admit waits until the server and the limits of the program's own let the request pass.
func (e *exchange) admit() (pass, *limiter.Result, error) {
	for {
		if e.req.Context().Err() != nil {
			return pass{}, nil, context.Cause(e.req.Context())
		}

		// The server comes first: a unit of the program's own limits is not held while the request
		// waits for the server.
		waited, now := e.waited, time.Now()
		p, err := e.enter(now)
		if err != nil {
			return pass{}, nil, err
		}

		own, err := e.takeOwn()
		if err != nil {
			e.gate.cancel(p)
			return pass{}, nil, err
		}

		// The clock is read again only after a wait.
		if e.waited > waited {
			now = time.Now()
		}
		if e.gate.startSending(&p, now) {
			return p, own, nil
		}
		// The server has refused another request while this one waited for its own limits.
		e.gate.cancel(p)
		own.Refund(context.WithoutCancel(e.req.Context()))
	}
}

// enter waits until the server lets the request pass.
func (e *exchange) enter(now time.Time) (pass, error) {
	p, passed, w, after := e.gate.enter(now, e.latest(now))
	switch {
	case passed:
		return p, nil
	case w == nil:
		return pass{}, &LimitedError{Key: e.key, RetryAfter: after, Err: limiter.ErrLimited}
	}

	ctx := e.req.Context()
	timer := time.NewTimer(w.latest.Sub(now))
	defer timer.Stop()

	var ended error
	select {
	case <-w.ready:
	case <-timer.C:
	case <-ctx.Done():
		ended = context.Cause(ctx)
	}

	// The turn may have come at the same instant at which the wait has ended.
	p, passed, after = e.gate.leave(w, time.Now())
	e.waited += time.Since(now)

	switch {
	case ended != nil && passed:
		e.gate.cancel(p)
		return pass{}, ended
	case ended != nil:
		return pass{}, ended
	case !passed:
		return pass{}, &LimitedError{Key: e.key, RetryAfter: after, Err: limiter.ErrLimited}
	}
	return p, nil
}

// takeOwn waits until the limits of the program's own admit the request. The result is nil if
// there are none.
func (e *exchange) takeOwn() (*limiter.Result, error) {
	if e.t.limiter == nil {
		return nil, nil
	}

	// A limiter that may wait no longer still decides at once.
	ctx, most := e.req.Context(), min(e.t.maxWait-e.waited, core.MaxBooking)
	var own *limiter.Result
	var err error
	if e.t.cost != nil {
		own, err = e.t.limiter.TakeCosts(ctx, e.key, e.costs, max(most, 0))
	} else if most > 0 {
		own, err = e.t.limiter.TakeWithin(ctx, e.key, 1, most)
	} else {
		own, err = e.t.limiter.Take(ctx, e.key, 1)
	}

	e.waited += own.Waited()
	switch {
	case own.Allowed():
		return own, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err == nil:
		err = limiter.ErrLimited
	}
	return nil, &LimitedError{Key: e.key, RetryAfter: own.RetryAfter(), Own: true, Err: err}
}

// mayRetry reports whether the request is to be sent again after its latest answer.
func (e *exchange) mayRetry() bool {
	if e.refusal == none || e.try >= e.t.retries {
		return false
	}
	if e.req.Body != nil && e.req.Body != http.NoBody && e.req.GetBody == nil {
		return false
	}
	if e.refusal == overloaded && !idempotent(e.req) {
		return false
	}
	now := time.Now()
	return !e.gate.opens(now).After(e.latest(now))
}

// replay returns the body of the request once more.
func (e *exchange) replay() (io.ReadCloser, error) {
	if e.req.GetBody == nil {
		return e.req.Body, nil
	}
	return e.req.GetBody()
}

// idempotent reports whether carrying a request out twice is as good as once, as net/http
// decides it. Source: RFC 9110, 9.2.2.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header["Idempotency-Key"] != nil || r.Header["X-Idempotency-Key"] != nil
}
