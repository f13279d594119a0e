package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

// told keeps what an observer and hooks are told, as lines in order.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (o *told) add(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = append(o.lines, fmt.Sprintf(format, args...))
}

// Observe notes a request in full, except for limits and the numbers of decisions.
func (o *told) Observe(_ context.Context, e *events.Request) {
	text := "request " + e.Verdict.String() + flags(e.Fallback, e.Waited, e.Err)
	for _, r := range e.Rules {
		text += fmt.Sprintf("; %s %q %s cost %d charged %d", r.Name, r.Key, r.Verdict, r.Cost, r.Charged) +
			flags(r.Decision.Fallback, r.Waited, r.Err)
	}
	o.add("%s", text)
}

func flags(fallback bool, waited time.Duration, err error) (text string) {
	if fallback {
		text += " fallback"
	}
	if waited > 0 {
		text += " waited " + waited.String()
	}
	if err != nil {
		text += " error " + strings.ReplaceAll(err.Error(), "\n", " / ")
	}
	return text
}

// hooks returns hooks that note what they are told, except for those of stores.
func (o *told) hooks() *events.Hooks {
	return &events.Hooks{
		Open: func(events.Inspector) { o.add("open") },
		Closed: func(events.Inspector) {
			time.Sleep(time.Nanosecond) // so that the requests that it ends come first
			o.add("closed")
		},
		Queue: func(e events.Queue) { o.add("queue %s %+d", e.Rule, e.Change) },
		Lease: func(e events.Lease) {
			o.add("lease %s %q %d ended %t held %s lost %t", e.Rule, e.Key, e.Units, e.Ended, e.Held, e.Lost)
		},
		Units: func(e events.Units) { o.add("units %s %q %s %d", e.Rule, e.Key, e.Flow, e.Units) },
		Ban:   func(e events.Ban) { o.add("ban %s %q for %s lifted %t", e.Rule, e.Key, e.For, e.Lifted) },
		Rules: func(e events.Rules) { o.add("rules %d, %v", e.Count, e.Err) },
	}
}

func (o *told) want(t testing.TB, want ...string) {
	t.Helper()
	o.mu.Lock()
	got := o.lines
	o.lines = nil
	o.mu.Unlock()
	if !slices.Equal(got, want) {
		t.Errorf("told\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// counter is a told that counts plain requests, under the key that the tests use, and must not
// observe any.
type counter struct {
	*told
	t     testing.TB
	rules *[]string // of the request, as all of the tests' come one by one
}

func (c counter) Observe(ctx context.Context, e *events.Request) {
	plain := (e.Verdict == events.Allowed || e.Verdict == events.Refused) && e.Err == nil && e.Waited == 0 &&
		len(e.Rules) > 0
	// Plain is what one unit per rule was taken for or refused, by the store itself and without a
	// wait. Those are counted, not observed.
	for i := range e.Rules {
		r := &e.Rules[i]
		plain = plain && r.Cost == 1 && r.Decision.At > 0 && r.Decision.Wait == 0 && !r.Decision.Fallback
	}

	if plain {
		c.t.Errorf("a plain request under %s was observed", e.Rules[0].Name)
	}
	c.told.Observe(ctx, e)
}

func (c counter) CountRequest(_ context.Context, r events.Plain) {
	c.add("request %s%s", r.Verdict, strings.Join(*c.rules, ""))
	*c.rules = nil
}

func (c counter) RuleCounter(rule string) events.RuleCounter {
	return countFunc(func(_ context.Context, v events.Verdict) {
		charged := 0
		if v == events.Allowed {
			charged = 1
		}
		// All that is counted took or asked for one unit, so the line can be written as Observe
		// would.
		*c.rules = append(*c.rules, fmt.Sprintf(`; %s "k" %s cost 1 charged %d`, rule, v, charged))
	})
}

// countFunc is a function that is a RuleCounter.
type countFunc func(context.Context, events.Verdict)

func (f countFunc) Count(ctx context.Context, v events.Verdict) { f(ctx, v) }

// observed returns a limiter that tells o everything.
func observed(t testing.TB, o *told, c limiter.Config) *limiter.Limiter {
	t.Helper()
	c.Hooks = o.hooks()
	if c.Observer == nil {
		c.Observer = o
	}
	l := configured(t, c)
	o.want(t, "open")
	return l
}

// A row is what is done with a limiter of the config, by every way that leads to a decision,
// and what is told of it.
type eventRow struct {
	name   string
	config func(t testing.TB) limiter.Config
	do     func(ctx context.Context, l *limiter.Limiter)
	want   []string
}

func one(r limiter.Rule) func(testing.TB) limiter.Config {
	return func(testing.TB) limiter.Config { return limiter.Config{Store: newTicking(), Rules: []limiter.Rule{r}} }
}

func rules(list ...limiter.Rule) func(testing.TB) limiter.Config {
	return func(testing.TB) limiter.Config { return limiter.Config{Store: newTicking(), Rules: list} }
}

func take(n int64) func(context.Context, *limiter.Limiter) {
	return func(ctx context.Context, l *limiter.Limiter) { _, _ = l.Take(ctx, "k", n) }
}

// each does all that is named, one after the other.
func each(do ...func(context.Context, *limiter.Limiter)) func(context.Context, *limiter.Limiter) {
	return func(ctx context.Context, l *limiter.Limiter) {
		for _, f := range do {
			f(ctx, l)
		}
	}
}

func admitted(status int) func(context.Context, *limiter.Limiter) {
	return func(_ context.Context, l *limiter.Limiter) { l.Admit(get()).Done(status) }
}

// settling takes 5 units and settles them as actual.
func settling(actual int64) func(context.Context, *limiter.Limiter) {
	return func(ctx context.Context, l *limiter.Limiter) {
		res, err := l.Take(ctx, "k", 5)
		if err == nil {
			err = res.Settle(ctx, map[string]int64{"a": actual})
		}
		if err != nil {
			panic(err)
		}
	}
}

// gone returns a context of a client that has left.
func gone(ctx context.Context) context.Context {
	ctx, leave := context.WithCancel(ctx)
	leave()
	return ctx
}

// heeding is a store that heeds the context, as one with a server does.
func heeding(s core.Store) core.Store {
	return storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return s.Apply(ctx, ops, out)
	})
}

func failing(mode limiter.FailureMode, list ...limiter.Rule) func(testing.TB) limiter.Config {
	return func(testing.TB) limiter.Config {
		return limiter.Config{Store: brokenStore(func() error { return errDown }), Rules: list, OnStoreError: mode}
	}
}

func TestEvents(t *testing.T) {
	a, b := rule(t, "a", "2/10s fixed-window"), rule(t, "b", "9/10s fixed-window")
	slots := waiting(t, "a", "1/10s burst=1", time.Minute)
	refundable := rule(t, "a", "2/10s fixed-window")
	// A response of 500 gives the unit back.
	refundable.RefundIf = func(status int) bool { return status == 500 }
	leases := leased(t, "a", "1 concurrent ttl=30s", time.Minute)

	closed := rule(t, "c", "9/10s fixed-window")
	closed.OnStoreError = limiter.FailClosed
	// A Key function that panics is the fault of one rule: its own mode for errors decides.
	faulty := rule(t, "f", "9/10s fixed-window")
	faulty.Key = func(core.Request) (string, bool) { panic("k") }
	faulty.OnStoreError = limiter.FailOpen
	faultyClosed := faulty
	faultyClosed.OnStoreError = limiter.FailClosed

	const allowed = `request allowed; a "k" allowed cost 1 charged 1`
	for _, row := range []eventRow{
		// The words that are common to limits: who refuses, who is overruled, what is charged.
		{"no rules", rules(), take(1), []string{"request allowed"}},
		{"Take", rules(a, b), each(take(1), take(0)),
			[]string{allowed + `; b "k" allowed cost 1 charged 1`,
				`request allowed; a "k" allowed cost 0 charged 0; b "k" allowed cost 0 charged 0`}},
		{"a refusal", rules(a, b), each(take(2), take(1)),
			[]string{`request allowed; a "k" allowed cost 2 charged 2; b "k" allowed cost 2 charged 2`,
				`request refused; a "k" refused cost 1 charged 0; b "k" overruled cost 1 charged 0`}},
		{"never fits", rules(a, b), take(3),
			[]string{`request impossible; a "k" impossible cost 3 charged 0; b "k" overruled cost 3 charged 0`}},
		// One rule can never hold 3 units, the other could later: the request is impossible, and
		// each rule says its own.
		{"never fits under one, over the limit of another", rules(a, rule(t, "b", "3/10s fixed-window")),
			each(take(1), take(3)),
			[]string{allowed + `; b "k" allowed cost 1 charged 1`,
				`request impossible; a "k" impossible cost 3 charged 0; b "k" refused cost 3 charged 0`}},
		// Soft rules over their limit charge nothing and stop nothing.
		{"degrade", rules(withOnLimit(a, limiter.Degrade), b), take(3),
			[]string{`request degraded; a "k" degraded cost 3 charged 0; b "k" allowed cost 3 charged 3`}},
		{"shadow", rules(withOnLimit(a, limiter.Shadow), b), take(3),
			[]string{`request shadow_refused; a "k" shadow_refused cost 3 charged 0; b "k" allowed cost 3 charged 3`}},
		{"shadow of a refused request", rules(withOnLimit(a, limiter.Shadow), b), take(10),
			[]string{`request impossible; a "k" shadow_refused cost 10 charged 0; b "k" impossible cost 10 charged 0`}},
		{"degrade and shadow", rules(withOnLimit(a, limiter.Shadow),
			withOnLimit(rule(t, "d", "1/1h"), limiter.Degrade)), take(3),
			[]string{`request degraded; a "k" shadow_refused cost 3 charged 0; d "k" degraded cost 3 charged 0`}},
		// Every way to a decision ends in the same event.
		{"Allow", one(a), func(ctx context.Context, l *limiter.Limiter) { _, _ = l.Allow(ctx, "k", 1) },
			[]string{allowed}},
		{"TakeUpTo", one(a), func(ctx context.Context, l *limiter.Limiter) {
			_, _ = l.TakeUpTo(ctx, "k", 5)
			_, _ = l.TakeUpTo(ctx, "k", 5)
		}, []string{`request allowed; a "k" allowed cost 5 charged 2`,
			`request refused; a "k" refused cost 5 charged 0`}},
		{"TakeRequest", one(a), func(_ context.Context, l *limiter.Limiter) { _, _ = l.TakeRequest(get()) },
			[]string{allowed}},
		{"Admit", one(a), admitted(200), []string{allowed}},
		// What decides about no request makes no event.
		{"Peek and Reset", one(a), func(ctx context.Context, l *limiter.Limiter) {
			_, _ = l.Peek(ctx, "k")
			_ = l.Reset(ctx, "k")
		}, nil},
		{"errors about arguments", one(a), func(ctx context.Context, l *limiter.Limiter) {
			_, _ = l.Take(ctx, "k", -1)
			_, _ = l.TakeWithin(ctx, "k", 1, -1)
			_ = l.Wait(ctx, "k", -1)
			_, _ = l.TakeRequest(nil)
		}, nil},
		// Waits: a request is counted into the queue and out of it again, and its event comes at
		// the end.
		{"Wait", one(slots), func(ctx context.Context, l *limiter.Limiter) {
			_ = l.Wait(ctx, "k", 1)
			_ = l.Wait(ctx, "k", 1)
		}, []string{allowed, "queue a +1", "queue a -1",
			`request waited waited 10s; a "k" waited cost 1 charged 1 waited 10s`}},
		{"Wait after the end of its context", one(a), func(ctx context.Context, l *limiter.Limiter) {
			_ = l.Wait(gone(ctx), "k", 1)
		},
			[]string{"request canceled"}},
		{"TakeWithin", rules(a, b), func(ctx context.Context, l *limiter.Limiter) {
			_, _ = l.Take(ctx, "k", 2)
			_, _ = l.TakeWithin(ctx, "k", 1, time.Minute)
			_, _ = l.TakeWithin(ctx, "k", 2, time.Second)
		}, []string{`request allowed; a "k" allowed cost 2 charged 2; b "k" allowed cost 2 charged 2`,
			"queue a +1", "queue a -1",
			`request waited waited 10s; a "k" waited cost 1 charged 1 waited 10s; b "k" allowed cost 1 charged 1`,
			`request refused; a "k" refused cost 2 charged 0; b "k" overruled cost 2 charged 0`}},
		{"a wait that is canceled", rules(slots, b), func(ctx context.Context, l *limiter.Limiter) {
			_, _ = l.Take(ctx, "k", 1)
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			time.AfterFunc(time.Second, cancel)
			l.Admit(&test.Request{Ctx: ctx}).Done(429)
		}, []string{allowed + `; b "k" allowed cost 1 charged 1`, "queue a +1", "queue a -1",
			`request canceled waited 1s; a "k" canceled cost 1 charged 0 waited 1s; b "k" overruled cost 1 charged 0`}},
		{"a wait that is ended by Close", one(slots), func(ctx context.Context, l *limiter.Limiter) {
			_, _ = l.Take(ctx, "k", 1)
			time.AfterFunc(time.Second, func() { l.Close() })
			l.Admit(get()).Done(429)
			time.Sleep(time.Second)
		}, []string{allowed, "queue a +1", "queue a -1",
			`request refused waited 1s; a "k" refused cost 1 charged 0 waited 1s`, "closed"}},
		// What is canceled twice is reported once.
		{"Reserve", one(slots), func(ctx context.Context, l *limiter.Limiter) {
			_, _ = l.Reserve(ctx, "k", 1)
			r, _ := l.Reserve(ctx, "k", 1)
			_ = r.Cancel(ctx)
			_ = r.Cancel(ctx)
			_, _ = l.Reserve(ctx, "k", 400)
		}, []string{allowed, allowed, `units a "k" refunded 1`,
			`request impossible; a "k" impossible cost 400 charged 0`}},
		// A lease has a beginning and an end. The release and the renewal after its end are silent.
		{"leases", one(leases), func(ctx context.Context, l *limiter.Limiter) {
			res, _ := l.Take(ctx, "k", 1)
			time.Sleep(time.Second)
			_ = res.Release(ctx)
			_ = res.Release(ctx)
			_, _ = res.Renew(ctx)
			x := l.Admit(get())
			time.Sleep(2 * time.Second)
			x.Done(200)
		}, []string{allowed, `lease a "k" 1 ended false held 0s lost false`,
			`lease a "k" 1 ended true held 1s lost false`,
			allowed, `lease a "k" 1 ended false held 0s lost false`, `lease a "k" 1 ended true held 2s lost false`}},
		{"leases of refunded and settled results", rules(leases, b), func(ctx context.Context, l *limiter.Limiter) {
			res, _ := l.Take(ctx, "k", 1)
			_ = res.Refund(ctx)
			res, _ = l.Take(ctx, "k", 1)
			_ = res.Settle(ctx, map[string]int64{"b": 0})
		}, []string{allowed + `; b "k" allowed cost 1 charged 1`, `lease a "k" 1 ended false held 0s lost false`,
			`lease a "k" 1 ended true held 0s lost false`, `units b "k" refunded 1`,
			allowed + `; b "k" allowed cost 1 charged 1`, `lease a "k" 1 ended false held 0s lost false`,
			`lease a "k" 1 ended true held 0s lost false`, `units b "k" settled 1`}},
		{"a lease of a wait that is canceled", rules(rule(t, "l", "9 concurrent ttl=30s"), slots),
			func(ctx context.Context, l *limiter.Limiter) {
				_, _ = l.Take(ctx, "k", 1)
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				time.AfterFunc(time.Second, cancel)
				_, _ = l.TakeWithin(ctx, "k", 1, time.Minute)
			}, []string{`request allowed; l "k" allowed cost 1 charged 1; a "k" allowed cost 1 charged 1`,
				`lease l "k" 1 ended false held 0s lost false`,
				"queue a +1", "queue a -1",
				`request canceled waited 1s; l "k" overruled cost 1 charged 0; a "k" canceled cost 1 charged 0 waited 1s`}},
		// Units that come back, or are charged later: refunds and settlements are told apart.
		{"RefundIf", one(refundable), each(admitted(200), admitted(500)),
			[]string{allowed, allowed, `units a "k" refunded 1`}},
		{"Settle below and above", one(rule(t, "a", "9/10s fixed-window")), each(settling(2), settling(7)),
			[]string{`request allowed; a "k" allowed cost 5 charged 5`, `units a "k" settled 3`,
				`request allowed; a "k" allowed cost 5 charged 5`, `units a "k" debited 2`}},
		// Lists and bans: a denial costs nothing, and a second lift is silent.
		{"a denial", one(listed(t, "a", "1/1h")), func(_ context.Context, l *limiter.Limiter) {
			l.Admit(callerFrom("mallory", "192.0.2.1:1")).Done(403)
			l.Admit(callerFrom("carol", "192.0.2.1:1")).Done(200)
		}, []string{`request denied; a "mallory" denied cost 0 charged 0`, "request allowed"}},
		{"bans", rules(banning(t, "a", "1/1s fixed-window")), func(ctx context.Context, l *limiter.Limiter) {
			each(take(1), take(1), take(1), take(1), take(1))(ctx, l)
			_ = l.Lift(ctx, "a", "k")
			_ = l.Lift(ctx, "a", "k")
		}, []string{allowed, `request refused; a "k" refused cost 1 charged 0`,
			`request refused; a "k" refused cost 1 charged 0`,
			`request banned; a "k" banned cost 1 charged 0`, `ban a "k" for 10m0s lifted false`,
			`request banned; a "k" banned cost 1 charged 0`, `ban a "k" for 0s lifted true`}},
		{"a second ban", rules(banning(t, "a", "1/1s fixed-window")), func(ctx context.Context, l *limiter.Limiter) {
			each(take(1), take(1), take(1), take(1))(ctx, l)
			time.Sleep(10 * time.Minute)
			each(take(1), take(1), take(1), take(1))(ctx, l)
		}, []string{allowed, `request refused; a "k" refused cost 1 charged 0`,
			`request refused; a "k" refused cost 1 charged 0`,
			`request banned; a "k" banned cost 1 charged 0`, `ban a "k" for 10m0s lifted false`,
			allowed, `request refused; a "k" refused cost 1 charged 0`,
			`request refused; a "k" refused cost 1 charged 0`,
			`request banned; a "k" banned cost 1 charged 0`, `ban a "k" for 15m0s lifted false`}},
		// Faults: of the store, which hit all rules, and of one rule, beside which the others are
		// decided.
		{"failed open", failing(limiter.FailOpen, a, b), take(1),
			[]string{`request failed_open error down; a "k" failed_open cost 1 charged 0 error down; b "k" failed_open cost 1 charged 0 error down`}},
		{"failed closed", failing(limiter.FailOpen, a, closed), take(1),
			[]string{`request failed_closed error down; a "k" failed_open cost 1 charged 0 error down; c "k" failed_closed cost 1 charged 0 error down`}},
		{"a rule that fails open", rules(faulty, b), admitted(200),
			[]string{`request failed_open error rule 0 "f": panic: "k"; b "k" allowed cost 1 charged 1; f "" failed_open cost 0 charged 0 error rule 0 "f": panic: "k"`}},
		{"a rule that fails closed", rules(b, faultyClosed, a), admitted(503),
			[]string{`request failed_closed error rule 1 "f": panic: "k"; b "k" overruled cost 1 charged 0; f "" failed_closed cost 0 charged 0 error rule 1 "f": panic: "k"`}},
		{"a client that has left", func(testing.TB) limiter.Config {
			return limiter.Config{Store: heeding(newTicking()), Rules: []limiter.Rule{a, b}}
		}, func(ctx context.Context, l *limiter.Limiter) { l.Admit(&test.Request{Ctx: gone(ctx)}).Done(503) },
			[]string{`request canceled error context canceled; a "k" canceled cost 1 charged 0 error context canceled; b "k" canceled cost 1 charged 0 error context canceled`}},
		{"no Key function", one(limiter.Rule{Name: "a", Limit: limit(t, "1/1s")}), admitted(503),
			[]string{`request failed_closed error rule 0 "a": the Key function is nil, so no request can be counted; ` +
				`a "" failed_closed cost 0 charged 0 error rule 0 "a": the Key function is nil, so no request can be counted`}},
		{"a preflight that is skipped", func(testing.TB) limiter.Config {
			return limiter.Config{Store: newTicking(), Rules: []limiter.Rule{a}, SkipPreflights: true}
		}, func(_ context.Context, l *limiter.Limiter) {
			l.Admit(&test.Request{Verb: "OPTIONS",
				Headers: map[string][]string{"Origin": {"x"}, "Access-Control-Request-Method": {"GET"}}}).Done(204)
		}, []string{"request allowed"}},
		{"changes of rules", one(a), func(_ context.Context, l *limiter.Limiter) {
			_ = l.SetRules([]limiter.Rule{a, b})
			_ = l.SetSelectedRules([]limiter.Rule{{Name: "!"}}, nil)
			_ = l.Close()
			_ = l.Close()
		}, []string{"rules 2, <nil>", "", "closed"}},
	} {
		for _, counts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, counter %t", row.name, counts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o, c := &told{}, row.config(t)
					if counts {
						c.Observer = counter{o, t, new([]string)}
					}
					l := observed(t, o, c)

					row.do(t.Context(), l)
					synctest.Wait()
					if i := slices.Index(row.want, ""); i >= 0 { // a line of which the beginning says enough
						row.want[i] = o.lines[i]
					}
					o.want(t, row.want...)
				})
			})
		}
	}
}

// The full event of a decision.
func TestEventHasTheDecision(t *testing.T) {
	seen := &recorder{}
	r := rule(t, "a", "2/10s fixed-window")
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{r}, Observer: seen})
	res, err := l.Take(t.Context(), "k", 1)
	if err != nil {
		t.Fatal(err)
	}
	want := []events.Request{{Verdict: events.Allowed,
		Rules: []events.Rule{{Name: "a", Key: "k", Verdict: events.Allowed,
			Limit: &r.Limit, Cost: 1, Charged: 1, Decision: res.Decisions()[0].Decision}}}}
	if got := seen.take(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Memory that is used again keeps nothing that a client sent.
func TestEventsKeepNoKeys(t *testing.T) {
	var kept *events.Rule
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{rule(t, "a", "2/1s")},
		Observer: events.Func(func(_ context.Context, e *events.Request) { kept = &e.Rules[0] })})
	if _, err := l.Allow(t.Context(), "secret", 1); err != nil || kept.Key != "" || kept.Name != "a" {
		t.Errorf("%+v, %v", kept, err)
	}
}

// A lease that others hold is lost, and its end says so.
func TestEventOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &told{}
		var down atomic.Bool
		s := newTicking()
		l := observed(t, o, limiter.Config{Rules: []limiter.Rule{rule(t, "a", "1 concurrent ttl=3s")}, Store: storeFunc(
			func(ctx context.Context, ops []core.Op, out []core.Decision) error {
				if down.Load() {
					return errDown
				}
				return s.Apply(ctx, ops, out)
			})})
		a := l.Admit(get())
		down.Store(true)
		time.Sleep(4 * time.Second)
		down.Store(false)
		a.Done(200)
		synctest.Wait()
		o.want(t, `request allowed; a "k" allowed cost 1 charged 1`, `lease a "k" 1 ended false held 0s lost false`,
			`lease a "k" 1 ended true held 4s lost true`)
	})
}

// A nil limiter has no observer, and denies.
func TestEventsOfANilLimiter(t *testing.T) {
	var l *limiter.Limiter
	if a := l.Admit(get()); a.Outcome() != limiter.Failed {
		t.Errorf("%s", a.Outcome())
	}
}

// Whatever a hook does, requests are decided.
func TestHooksThatPanic(t *testing.T) {
	h := &events.Hooks{
		Open: func(events.Inspector) { panic("o") }, Closed: func(events.Inspector) { panic("o") },
		Lease: func(events.Lease) { panic("o") },
		Units: func(events.Units) { panic("o") }, Rules: func(events.Rules) { panic("o") },
	}
	l := configured(t, limiter.Config{Store: newStore(), Hooks: h,
		Rules: []limiter.Rule{rule(t, "a", "1 concurrent ttl=3s"), rule(t, "b", "1/1s")}})
	res, err := l.Take(t.Context(), "k", 1)
	if err != nil || !res.Allowed() {
		t.Errorf("%v", err)
	}
	if err := errors.Join(res.Refund(t.Context()), l.SetRules(nil), l.Close()); err != nil {
		t.Error(err)
	}
}

// bypassed is a store with a breaker that is open.
type bypassed struct {
	core.Store
	mode events.Mode
	told []*events.Hooks
}

func (s *bypassed) Report() events.Report {
	return events.Report{
		Listen: func(h *events.Hooks) { s.told = append(s.told, h) },
		Status: func(list []events.StoreStatus) []events.StoreStatus {
			return append(list, events.StoreStatus{Store: "failover", Mode: s.mode, Away: []string{""}},
				events.StoreStatus{Store: "redis"})
		},
	}
}

// backed is such a store with a fallback.
type backed struct{ bypassed }

func (s *backed) Back() (core.Standby, func()) {
	return core.Standby{Store: s, Strict: s.Store, Fallback: s.Store}, nil
}

// The limiter knows what decides while its store is away, and hands its hooks on.
func TestStoresOfALimiter(t *testing.T) {
	for _, row := range []struct {
		fallback bool
		mode     limiter.FailureMode
		want     string
	}{
		{false, limiter.FailDefault, "open"}, {false, limiter.FailOpen, "open"}, {false, limiter.FailClosed, "closed"},
		{true, limiter.FailDefault, "local"}, {true, limiter.FailLocal, "local"}, {true, limiter.FailOpen, "open"},
		{true, limiter.FailClosed, "closed"},
	} {
		without := &bypassed{Store: newStore(), mode: events.PassesUndecided}
		s, told := core.Store(without), &without.told
		if row.fallback {
			with := &backed{bypassed{Store: newStore(), mode: events.FallbackDecides}}
			s, told = with, &with.told
		}
		h := &events.Hooks{}
		l := configured(t, limiter.Config{Store: s, OnStoreError: row.mode, Hooks: h})
		got := l.Stores()
		if len(got) != 2 || got[0].Mode.String() != row.want || got[1].Mode != events.StoreDecides {
			t.Errorf("fallback %t, %s: %+v, want %s", row.fallback, row.mode, got, row.want)
		}
		if len(*told) != 2 || (*told)[1] != h || l.Hooks() == nil { // the first are for Status
			t.Errorf("the store was given %d hooks", len(*told))
		}
	}
	if got := configured(t, limiter.Config{Store: brokenStore(func() error { return errDown })}).Stores(); got != nil {
		t.Errorf("%+v", got)
	}
}

// The names of the rules change with them.
func TestRuleNames(t *testing.T) {
	l := configured(t, limiter.Config{Store: newStore(),
		Rules: []limiter.Rule{rule(t, "b", "1/1s"), rule(t, "a", "1/1s")}})
	if got := l.RuleNames(); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("%q", got)
	}
	if err := l.SetRules([]limiter.Rule{rule(t, "c", "1/1s")}); err != nil {
		t.Fatal(err)
	}
	if got := l.RuleNames(); !slices.Equal(got, []string{"c"}) {
		t.Errorf("%q", got)
	}
}
