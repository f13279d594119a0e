package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Pool is one upstream. It is safe for concurrent use.
type Pool struct {
	options   Options
	addresses []*address
	target    url.URL // see Target
	transport *http.Transport
	logger    *slog.Logger
	turn      atomic.Uint64 // of the next choice

	asking   context.Context    // of the questions; nil without any
	end      context.CancelFunc // of asking
	checking sync.WaitGroup
}

// address is one server of an upstream.
type address struct {
	url      *url.URL
	inFlight atomic.Int64

	sick     atomic.Bool  // by the questions
	failures atomic.Int64 // connections in a row
	outUntil atomic.Int64 // by failures, in nanoseconds since the Unix epoch; 0 if it is not out
}

func newPool(o Options, logger *slog.Logger) (*Pool, error) {
	t, err := transport(&o)
	if err != nil {
		return nil, err
	}

	p := &Pool{options: o, transport: t, logger: logger, target: *o.Addresses[0]}
	if p.target.Scheme == "h2c" {
		p.target.Scheme = "http" // net/http knows h2c by the protocols of its transport
	}

	for _, u := range o.Addresses {
		p.addresses = append(p.addresses, &address{url: u})
	}

	return p, nil
}

// inherit takes over what is known of the addresses that the pool before has too, before it begins.
func (p *Pool) inherit(before *Pool) {
	p.turn.Store(before.turn.Load())
	for i, a := range p.addresses {
		at := slices.IndexFunc(before.addresses, func(b *address) bool { return b.url.String() == a.url.String() })

		// Other questions may have another answer.
		if at >= 0 && p.options.Health == before.options.Health {
			p.addresses[i] = before.addresses[at]
		}
	}
}

// Name returns the name of the upstream.
func (p *Pool) Name() string { return p.options.Name }

// Host returns the host that the upstream is asked for, or "" for the client's.
func (p *Pool) Host() string { return p.options.Host }

// Target returns a URL with the scheme and the path of all addresses, for the request that Do gets.
// It must not be changed.
func (p *Pool) Target() *url.URL { return &p.target }

// Call is what was done with one request. The zero value is one that was not sent yet.
type Call struct {
	// BodyFailed is set by the caller when the client has broken off the body of the request, so
	// that no address is blamed for it.
	BodyFailed atomic.Bool

	at    *address
	tried []*address // before at
}

// Address returns the host and port that the request was sent to last, or "".
func (c *Call) Address() string {
	if c.at == nil {
		return ""
	}
	return c.at.url.Host
}

// Attempts returns how often the request was sent.
func (c *Call) Attempts() int {
	if c.at == nil {
		return 0
	}
	return len(c.tried) + 1
}

// End ends the call, whose request is in flight until then.
func (c *Call) End() {
	if c.at != nil {
		c.at.inFlight.Add(-1)
	}
}

// moveTo makes a the address that the request is sent to next.
func (c *Call) moveTo(a *address) {
	if c.at != nil {
		c.at.inFlight.Add(-1)
		c.tried = append(c.tried, c.at)
	}
	c.at = a
	a.inFlight.Add(1)
}

// Do sends a request, again and to other addresses as the options say, and returns the last answer
// or error. The caller calls End when it is done with the answer.
func (p *Pool) Do(r *http.Request, c *Call) (*http.Response, error) {
	// Most requests are sent once, and cost nothing more.
	attempts := 1
	var body *replay
	if p.options.Attempts > 1 && isIdempotent(r.Method) {
		if replayable, ok := replayOf(r); ok {
			attempts, body = p.options.Attempts, replayable
		}
	}

	if attempts == 1 {
		return p.send(r, c)
	}

	// What has reached the client, such as an early hint, cannot be taken back.
	informed := &atomic.Bool{}
	r = watch(r, informed)
	for n := 1; ; n++ {
		if body != nil {
			r.Body = body.again()
		}
		res, err := p.send(r, c)
		if n == attempts || informed.Load() || !p.mayRepeat(r, c, res, err) {
			return res, err
		}
		// A transport may still hold the request that has failed, so the next is another.
		if res != nil {
			discard(res)
		}
		next := *r
		r = &next
	}
}

// send sends a request to one address.
func (p *Pool) send(r *http.Request, c *Call) (*http.Response, error) {
	c.moveTo(p.choose(c))
	if len(p.addresses) > 1 {
		to := *r.URL
		to.Host = c.at.url.Host
		r.URL = &to
	}

	res, err := p.transport.RoundTrip(r)
	if len(p.addresses) > 1 && p.options.Failures > 0 {
		p.judge(r.Context(), c, err)
	}

	return res, err
}

// mayRepeat reports whether the outcome of a request is one after which it is sent again.
func (p *Pool) mayRepeat(r *http.Request, c *Call, res *http.Response, err error) bool {
	if err != nil {
		return isBroken(r.Context(), c, err)
	}
	return slices.Contains(p.options.Statuses, res.StatusCode)
}

// isBroken reports whether an error is that of the connection to the address. A time-out of an
// answer is none, as the server may be at work, and neither is what the client has broken off.
func isBroken(ctx context.Context, c *Call, err error) bool {
	if ctx.Err() != nil || c.BodyFailed.Load() {
		return false
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return true
	}
	var timeout interface{ Timeout() bool }
	return !errors.As(err, &timeout) || !timeout.Timeout()
}

// judge keeps whether the connection of a call has failed, and takes an address out after as many
// failures in a row as the options say.
func (p *Pool) judge(ctx context.Context, c *Call, err error) {
	a := c.at
	switch {
	case err == nil:
		if a.failures.Load() != 0 {
			a.failures.Store(0)
		}
	case isBroken(ctx, c, err):
		if a.failures.Add(1) < int64(p.options.Failures) {
			return
		}
		// It begins anew after its time.
		a.failures.Store(0)
		a.outUntil.Store(time.Now().Add(p.options.Out).UnixNano())
		p.logger.Warn("an address of an upstream gets no requests for a while, as connections fail",
			"upstream", p.options.Name, "address", a.url.Host, "for", p.options.Out, "error", err.Error())
	}
}

// choose returns the address for the next attempt of a call: one that is well and was not tried
// yet. If none is well, it returns one that was not tried, and if all were tried, any.
func (p *Pool) choose(c *Call) *address {
	if len(p.addresses) == 1 {
		return p.addresses[0]
	}

	// The address that has just failed is tried as well.
	tried := c.tried
	if c.at != nil {
		tried = append(tried[:len(tried):len(tried)], c.at)
	}

	first := int(p.turn.Add(1) % uint64(len(p.addresses)))
	for _, may := range []func(*address) bool{
		func(a *address) bool { return a.isWell() && !slices.Contains(tried, a) },
		func(a *address) bool { return !slices.Contains(tried, a) },
	} {
		if a := p.least(first, may); a != nil {
			return a
		}
	}

	return p.addresses[first]
}

// least returns the address with the fewest requests in flight of those that may be chosen, or the
// first of them in turn, as the balance says. It returns nil if none may.
func (p *Pool) least(first int, may func(*address) bool) (best *address) {
	// Others may choose at the same time, so the number is near enough.
	fewest := int64(0)
	for i := range p.addresses {
		a := p.addresses[(first+i)%len(p.addresses)]
		if !may(a) {
			continue
		}
		if p.options.Balance == RoundRobin {
			return a
		}
		if n := a.inFlight.Load(); best == nil || n < fewest {
			best, fewest = a, n
		}
	}

	return best
}

// isWell reports whether an address gets requests while others do.
func (a *address) isWell() bool {
	if a.sick.Load() {
		return false
	}
	until := a.outUntil.Load()
	return until == 0 || time.Now().UnixNano() >= until
}
