// Package scenario has limiters do everything that a package of metrics counts, and states what it
// has counted then. Each package of metrics plays it and reads its metrics back by a library of
// others, so that all say the same. [Play] plays it.
package scenario

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
)

// Counted is what is counted in the end, one series a line, sorted.
//
//go:embed counted.txt
var Counted string

// Line returns a line of Counted: the name and the attributes as OpenTelemetry has them.
func Line(name string, attributes map[string]string, value float64) string {
	return name + text(attributes) + " " + number(value)
}

// HistogramLine returns the line of a histogram, with the count of each bucket by itself; the
// last one is of what is above all bounds.
func HistogramLine(name string, attributes map[string]string, count uint64, sum float64, buckets []uint64) string {
	return fmt.Sprintf("%s%s count %d sum %s buckets %v", name, text(attributes), count, number(sum), buckets)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 12, 64) }

func text(attributes map[string]string) string {
	var list []string
	for name, value := range attributes {
		if value != "" {
			list = append(list, fmt.Sprintf("%s=%q", name, value))
		}
	}
	slices.Sort(list)
	return "{" + strings.Join(list, ",") + "}"
}

// Play plays the scenario in fake time. start makes the metrics, and returns how they are
// installed and how their lines are read.
func Play(t *testing.T, start func(t *testing.T) (install func(*limiter.Config), read func() []string)) {
	synctest.Test(t, func(t *testing.T) {
		install, read := start(t)
		p := &play{t: t, install: install}

		p.limits()
		p.waits()
		p.corrections()
		p.stores()

		// The second reading shows that the first has changed nothing.
		synctest.Wait()
		for range 2 {
			got, want := read(), strings.Split(strings.TrimSpace(Counted), "\n")
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("counted\n%s", difference(got, want))
			}
		}

		// Leases and waits end before the limiters that they belong to.
		slices.Reverse(p.ends)
		for _, end := range p.ends {
			end()
		}
	})
}

func difference(got, want []string) string {
	var b strings.Builder
	for _, line := range want {
		if !slices.Contains(got, line) {
			fmt.Fprintln(&b, "missing:", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			fmt.Fprintln(&b, "not wanted:", line)
		}
	}
	return b.String()
}

type play struct {
	t       *testing.T
	install func(*limiter.Config)
	ends    []func()
}

// open returns a limiter in which the metrics are installed.
func (p *play) open(c limiter.Config) *limiter.Limiter {
	c.Logger = slog.New(slog.DiscardHandler)
	if c.Store == nil {
		memory := memstore.MustNew(memstore.Options{Logger: c.Logger})
		c.Store = apply(memory.Apply) // which says nothing of itself
	}
	p.install(&c)
	l, err := limiter.New(c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.ends = append(p.ends, func() { l.Close() })
	return l
}

// apply is a store that is no events.Reporter.
type apply func(ctx context.Context, ops []core.Op, out []core.Decision) error

func (a apply) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	return a(ctx, ops, out)
}

func limit(text string) core.Limit { return core.MustParseLimit(text) }

func (p *play) take(l *limiter.Limiter, key string, cost int64, want events.Verdict) *limiter.Result {
	p.t.Helper()
	res, err := l.Take(p.t.Context(), key, cost)
	if (res != nil && res.Allowed()) != want.Passes() {
		p.t.Errorf("%v, want %s", err, want)
	}
	return res
}

// limits has requests allowed and turned away by every verdict but those of waits.
func (p *play) limits() {
	l := p.open(limiter.Config{Rules: []limiter.Rule{
		{Name: "visitors", Limit: limit("2/1h fixed-window")}, {Name: "day", Limit: limit("100/24h fixed-window")},
	}})
	p.take(l, "ann", 1, events.Allowed)
	p.take(l, "ann", 1, events.Allowed)
	p.take(l, "ann", 1, events.Refused)
	p.take(l, "bob", 2, events.Allowed)
	p.take(l, "bob", 3, events.Impossible)

	// A rule that does not reject says what it has found of those over its limit.
	one := limit("1/1h fixed-window")
	l = p.open(limiter.Config{Rules: []limiter.Rule{{Name: "soft", Limit: one, OnLimit: limiter.Degrade}}})
	p.take(l, "ann", 1, events.Allowed)
	p.take(l, "ann", 1, events.Degraded)
	l = p.open(limiter.Config{Rules: []limiter.Rule{{Name: "trial", Limit: one, OnLimit: limiter.Shadow}}})
	p.take(l, "ann", 1, events.Allowed)
	p.take(l, "ann", 1, events.ShadowRefused)

	lists := keyfuncs.MustAccess(keyfuncs.Lists{Deny: keyfuncs.Callers{Keys: []string{"mallory"}}})
	l = p.open(limiter.Config{Rules: []limiter.Rule{{Name: "listed", Limit: limit("1/1h"), Access: lists}}})
	p.take(l, "mallory", 1, events.Denied)

	// Three are banned, and one of them is let in again.
	ban := core.MustParseBan("1/1m for 1h max 1h")
	l = p.open(limiter.Config{Rules: []limiter.Rule{{Name: "abuse", Limit: one, Ban: ban}}})
	for _, key := range []string{"ann", "bob", "carol"} {
		p.take(l, key, 1, events.Allowed)
		p.take(l, key, 1, events.Banned)
		p.take(l, key, 1, events.Banned)
	}
	if err := l.Lift(p.t.Context(), "abuse", "bob"); err != nil {
		p.t.Error(err)
	}

	broken := apply(func(context.Context, []core.Op, []core.Decision) error { return errors.New("down") })
	for mode, want := range map[limiter.FailureMode]events.Verdict{
		limiter.FailOpen: events.FailedOpen, limiter.FailClosed: events.FailedClosed,
	} {
		rules := []limiter.Rule{{Name: "outage", Limit: limit("1/1h"), OnStoreError: mode}}
		p.take(p.open(limiter.Config{Store: broken, Rules: rules}), "ann", 1, want)
	}
}

// waits has requests wait, find the queue full, and leave. One still waits in the end.
func (p *play) waits() {
	l := p.open(limiter.Config{MaxWaiters: 1, Rules: []limiter.Rule{
		{Name: "slow", Limit: limit("1/10s burst=1"), OnLimit: limiter.Wait(time.Hour)},
	}})
	ctx := p.t.Context()
	p.take(l, "ann", 1, events.Allowed)
	if err := l.Wait(ctx, "ann", 1); err != nil { // 10 s
		p.t.Error(err)
	}

	leaves, leave := context.WithCancel(ctx)
	time.AfterFunc(3*time.Second, leave)
	if err := l.Wait(leaves, "ann", 1); err == nil {
		p.t.Error("a canceled wait was admitted")
	}

	// One waits until the end of the scenario, and fills the queue for the next.
	waits, end := context.WithCancel(ctx)
	p.ends = append(p.ends, end)
	go func() { _ = l.Wait(waits, "ann", 1) }()
	synctest.Wait()
	if err := l.Wait(ctx, "ann", 1); !errors.Is(err, limiter.ErrQueueFull) {
		p.t.Errorf("%v, want ErrQueueFull", err)
	}
}

// corrections gives units back, settles and debits them, and holds two leases, of which one
// is released after 2 s.
func (p *play) corrections() {
	ctx := p.t.Context()
	l := p.open(limiter.Config{Rules: []limiter.Rule{{Name: "tokens", Limit: limit("1000/1h fixed-window")}}})
	err := p.take(l, "ann", 10, events.Allowed).Refund(ctx)
	for _, used := range []int64{4, 15} {
		err = errors.Join(err, p.take(l, "ann", 10, events.Allowed).Settle(ctx, map[string]int64{"tokens": used}))
	}

	jobs := p.open(limiter.Config{Rules: []limiter.Rule{{Name: "jobs", Limit: limit("2 concurrent ttl=1h")}}})
	held, job := p.take(jobs, "ann", 1, events.Allowed), p.take(jobs, "ann", 1, events.Allowed)
	time.Sleep(2 * time.Second)
	err = errors.Join(err, job.Release(ctx))
	p.ends = append(p.ends, func() { _ = held.Release(context.Background()) })
	if err != nil {
		p.t.Error(err)
	}
}

// source is a store that says of itself what it has, as a failover store over Redis does.
type source struct {
	core.Store
	list []events.StoreStatus
}

func (s *source) Back() (core.Standby, func()) {
	return core.Standby{Store: s, Strict: s.Store, Fallback: s.Store}, nil
}

func (s *source) Report() events.Report {
	return events.Report{
		Status: func(list []events.StoreStatus) []events.StoreStatus { return append(list, s.list...) },
	}
}

// stores reports what stores and followers of policies do. Two limiters share the stores.
func (p *play) stores() {
	s := &source{Store: apply(memstore.MustNew(memstore.Options{Logger: slog.New(slog.DiscardHandler)}).Apply)}
	s.list = []events.StoreStatus{{Store: "failover", Of: s, Mode: events.FallbackDecides, Away: []string{""}},
		{Store: "prefetch", Of: &source{}, Held: map[string]int64{"visitors": 40, "day": 3, "gone": 2}},
		{Store: "redis", Of: &source{}}, {Store: "memory", Of: &source{}, Keys: 70, Overflow: 3}}

	// What a store says of itself counts once, however many limiters ask it.
	l := p.open(limiter.Config{Store: s})
	p.open(limiter.Config{Store: s})
	h := l.Hooks()
	h.StoreCall(events.StoreCall{Store: "redis", Steps: 1, Ops: 1, Took: 80 * time.Microsecond})
	h.StoreCall(events.StoreCall{Store: "redis", Steps: 20, Ops: 48, Took: 3 * time.Millisecond})
	for e := events.Timeout; int(e) < events.ErrorTypes; e++ {
		h.StoreCall(events.StoreCall{Store: "redis", Steps: 1, Ops: 2, Took: time.Second,
			Err: errors.New(e.String()), Type: e})
	}

	h.Breaker(events.Breaker{Open: true, Fallback: true, Cause: errors.New("down")})
	h.Breaker(events.Breaker{})
	h.Breaker(events.Breaker{Open: true, Fallback: true, Cause: errors.New("down")})

	for range 5 {
		h.CachedRefusal("visitors")
	}

	h.Policy(events.Policy{App: "shop", Change: events.PolicyApplied, Version: "12", Policies: 3})
	h.Policy(events.Policy{App: "shop", Change: events.PolicyApplied, Version: "13", Policies: 3})
	h.Policy(events.Policy{App: "shop", Change: events.PolicyRefused, Version: "14", Err: errors.New("bad")})
	h.Policy(events.Policy{App: "shop", Change: events.PolicySourceAway, Err: errors.New("away")})
}
