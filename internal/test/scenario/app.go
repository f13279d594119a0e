package scenario

import (
	"context"
	"time"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

// An App reports to a package of metrics what a program under load does, without a limiter.
// Whatever can happen happens at each Tick, unless the app is healthy.
type App struct {
	Config   limiter.Config // in which metrics are installed
	Healthy  bool
	Revision string // of the policies
}

// Requests is how many requests there are in a Tick. Of an app that is not healthy, one has
// each verdict, and the others are allowed.
const Requests = 22

// Stores implements [events.Inspector].
func (a *App) Stores() []events.StoreStatus {
	if a.Healthy {
		return []events.StoreStatus{{Store: "failover"}, {Store: "redis"}, {Store: "memory", Keys: 70}}
	}
	return []events.StoreStatus{{Store: "failover", Mode: events.FallbackDecides, Away: []string{""}},
		{Store: "prefetch", Held: map[string]int64{"visitors": 40}}, {Store: "redis"},
		{Store: "memory", Keys: 70, Overflow: 3}}
}

// RuleNames returns the rules in force.
func (a *App) RuleNames() []string { return []string{"uploads", "visitors"} }

// Open opens the app. It is called once, before Tick.
func (a *App) Open() {
	a.Config.Hooks.Open(a)
	a.Config.Hooks.Policy(events.Policy{Change: events.PolicyApplied, Version: a.Revision})
}

// Tick reports once what happens.
func (a *App) Tick(ctx context.Context) {
	allowed := Requests
	if !a.Healthy {
		// Overruled is the last verdict, and that of no request.
		for v := range events.Overruled {
			a.request(ctx, v)
			allowed--
		}
		a.incidents()
	}

	for range allowed {
		a.request(ctx, events.Allowed)
	}
	a.Config.Hooks.StoreCall(events.StoreCall{Store: "redis", Steps: 3, Ops: 5, Took: 200 * time.Microsecond})
}

// request reports one request, which is charged a unit if it passes.
func (a *App) request(ctx context.Context, v events.Verdict) {
	e := &events.Request{Verdict: v, Rules: []events.Rule{{Name: "visitors", Verdict: v, Cost: 1}}}
	if v.Passes() {
		e.Rules[0].Charged = 1
	}
	if v == events.Waited {
		e.Waited = 20 * time.Millisecond
		e.Rules[0].Waited = e.Waited
	}
	a.Config.Observer.Observe(ctx, e)
}

// incidents reports everything that is no request.
func (a *App) incidents() {
	h := a.Config.Hooks
	h.Queue(events.Queue{Rule: "visitors", Change: 1})

	// Two leases begin, and one ends.
	for range 2 {
		h.Lease(events.Lease{Rule: "uploads", Units: 1})
	}
	h.Lease(events.Lease{Rule: "uploads", Units: 1, Ended: true, Held: 2 * time.Second})
	for f := events.Refunded; f <= events.Debited; f++ {
		h.Units(events.Units{Rule: "uploads", Flow: f, Units: 3})
	}

	h.Ban(events.Ban{Rule: "visitors", Key: "ann", For: time.Hour})
	h.Near(events.Near{Rule: "visitors", Key: "ann"})
	for e := range events.ErrorType(events.ErrorTypes) {
		h.StoreCall(events.StoreCall{Store: "redis", Steps: 3, Ops: 5, Took: 60 * time.Millisecond, Type: e})
	}

	h.Breaker(events.Breaker{Open: true, Fallback: true})
	h.Breaker(events.Breaker{})
	h.CachedRefusal("visitors")
	h.Policy(events.Policy{Change: events.PolicyRefused, Version: "99"})
}
