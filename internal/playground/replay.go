package playground

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// MaxRequests is how many requests a pattern may have. Under two limits they take a browser a tenth
// of a second. A decision takes longer with many leases: each leasesOfRequest begun count as a
// request.
const MaxRequests, leasesOfRequest = 10_000, 50

// Start is the instant from which patterns are replayed, on which windows by the clock depend. It
// is in the midst of a minute, an hour, a day and a month.
var Start = time.Date(2026, 1, 15, 9, 40, 20, 0, time.UTC)

// request is one request of a replay, by the time since Start in microseconds.
type request struct {
	at       int64
	admitted bool
}

// replay is what a limit did with a pattern.
type replay struct {
	requests []request
	admitted int
	wait     time.Duration // the longest that a refusal named
	first    time.Duration // the instant of the first refusal, if there is one
}

// replay has a limit decide the requests that come before the end of a span.
func (p pattern) replay(l core.Limit, span time.Duration) (*replay, error) {
	if l.Leased() && p.takes > l.Period {
		return nil, fmt.Errorf("takes %s is longer than the ttl of %q, whose leases this page does not renew",
			textform.Duration(p.takes), l)
	}

	r, k := &replay{}, newKey(l)
	var at int64
	var d core.Decision
	for i, work := int64(0), 0; ; i++ {
		if at = p.next(i, at, d); at >= span.Microseconds() {
			return r, nil
		}
		if work += 1 + (len(k.held)+leasesOfRequest-1)/leasesOfRequest; work > MaxRequests {
			return nil, p.tooMany(l, span)
		}

		d = k.take(at, p.takes)
		r.requests = append(r.requests, request{at, d.Allowed})
		if d.Allowed {
			r.admitted++
			continue
		}

		if r.wait == 0 {
			r.first = time.Duration(at) * time.Microsecond
		}
		r.wait = max(r.wait, d.RetryAfter)
	}
}

// tooMany is the error of a replay that would take a browser too long.
func (p *pattern) tooMany(l core.Limit, span time.Duration) error {
	fewer := ""
	if l.Leased() {
		fewer = ", or so many that hold leases at the same time"
	}
	return fmt.Errorf("more than %d requests come within %s%s; ask for fewer, or a shorter time",
		MaxRequests, textform.Duration(span), fewer)
}

// key is a key with the arithmetic of a store and its own clock.
type key struct {
	limit   core.Limit
	windows *core.Windows
	state   core.State
	held    []held

	// What a decision needs is kept, because there are many.
	op     [1]core.Op
	states [1]*core.State
	out    [1]core.Decision
}

func newKey(l core.Limit) *key {
	k := &key{limit: l}
	k.states[0] = &k.state
	return k
}

// held is a request that holds a lease until it ends.
type held struct {
	until  int64
	refund core.Op
}

// take takes a unit at an instant, for a request that runs for so long.
func (k *key) take(at int64, takes time.Duration) core.Decision {
	// Requests that have ended give their leases back first.
	for len(k.held) > 0 && k.held[0].until <= at {
		k.decide(k.held[0].refund, k.held[0].until)
		k.held = k.held[1:]
	}

	// The rules of a time zone are read once in a window.
	now := Start.UnixMicro() + at
	if k.limit.NeedsWindows() && (k.windows == nil || now >= k.windows[4]) {
		k.windows = k.limit.Windows(now)
	}

	op := core.Op{Limit: k.limit, Windows: k.windows, Cost: 1}
	if k.limit.Leased() {
		op.Lease = fmt.Sprint(at, " ", len(k.held)) // as many more are held as were admitted at this instant
	}
	d := k.decide(op, at)
	if d.Allowed && k.limit.Leased() {
		k.held = append(k.held, held{at + takes.Microseconds(), op.Refund(d)})
	}
	return d
}

func (k *key) decide(op core.Op, at int64) core.Decision {
	k.op[0] = op
	core.Decide(k.op[:], k.states[:], Start.UnixMicro()+at, k.out[:])
	return k.out[0]
}
