package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/failover"
)

// counters is a Counter of functions.
type counters struct {
	events.Func
	count func(events.Plain)
	of    func(rule string) events.RuleCounter
}

func (c counters) CountRequest(_ context.Context, r events.Plain) { c.count(r) }

func (c counters) RuleCounter(rule string) events.RuleCounter { return c.of(rule) }

// What is plain needs more than the verdict.
func TestOnlyPlainRequestsAreCounted(t *testing.T) {
	// A decision of the fallback is told as such, and so is one that took no unit: neither is
	// plain.
	byFallback := storeFunc(func(_ context.Context, _ []core.Op, out []core.Decision) error {
		out[0] = core.Decision{Allowed: true, Taken: 1, Fallback: true}
		return nil
	})
	idle := storeFunc(func(_ context.Context, _ []core.Op, out []core.Decision) error {
		out[0] = core.Decision{Allowed: true}
		return nil
	})

	unlisted := listed(t, "b", "1/1h")
	// elsewhere applies to no request.
	elsewhere := rule(t, "b", "9/1s")
	elsewhere.Key = func(core.Request) (string, bool) { return "", false }
	// failing cannot be evaluated, and open passes what the store does not decide.
	noted := rule(t, "a", "9/1s")
	failing, open := rule(t, "b", "9/1s"), rule(t, "b", "9/1s")
	failing.Key = func(core.Request) (string, bool) { panic("no key") }
	open.OnStoreError = limiter.FailOpen
	for _, row := range []struct {
		name  string
		store core.Store
		rules []limiter.Rule
		do    func(*limiter.Limiter) error
		plain int
	}{
		// Plain is one unit per rule that was taken or refused by the store at once. Everything
		// else is observed in full.
		{"one unit under one rule", newStore(), []limiter.Rule{noted},
			func(l *limiter.Limiter) error { _, err := l.Allow(t.Context(), "k", 1); return err }, 1},
		{"a refusal", newStore(), []limiter.Rule{rule(t, "a", "1/1h fixed-window")}, func(l *limiter.Limiter) error {
			_, err := l.Take(t.Context(), "k", 1)
			_, again := l.Take(t.Context(), "k", 1)
			return errors.Join(err, again)
		}, 2},
		{"a refusal beside a denial in shadow", newStore(), []limiter.Rule{rule(t, "a", "1/1h fixed-window"),
			withOnLimit(unlisted, limiter.Shadow)}, func(l *limiter.Limiter) error {
			_, err := l.Take(t.Context(), "mallory", 1)
			_, again := l.Take(t.Context(), "mallory", 1)
			return errors.Join(err, again)
		}, 0},
		{"a refusal beside a rule that failed", newStore(), []limiter.Rule{rule(t, "a", "1/1h fixed-window"), failing},
			func(l *limiter.Limiter) error {
				l.Admit(get()).Done(200)
				l.Admit(get()).Done(429)
				return nil
			}, 0},
		{"a refusal by the fallback beside a rule that fails open",
			failover.MustNew(brokenStore(func() error { return errDown }), failover.Options{
				Fallback: newStore(), Logger: slog.New(slog.DiscardHandler)}),
			[]limiter.Rule{rule(t, "a", "1/1h fixed-window"), open}, func(l *limiter.Limiter) error {
				l.Admit(get()).Done(200)
				l.Admit(get()).Done(429)
				return nil
			}, 0},
		{"two rules", newStore(), []limiter.Rule{noted, rule(t, "b", "9/1s")},
			func(l *limiter.Limiter) error { _, err := l.Take(t.Context(), "k", 1); return err }, 1},
		{"a refusal by one of three rules", newStore(),
			[]limiter.Rule{noted, rule(t, "b", "1/1h fixed-window"), rule(t, "c", "9/1s")},
			func(l *limiter.Limiter) error {
				_, err := l.Take(t.Context(), "k", 1)
				_, again := l.Take(t.Context(), "k", 1)
				return errors.Join(err, again)
			}, 2},
		{"two rules, and over the limit of one in shadow", newStore(),
			[]limiter.Rule{noted, withOnLimit(rule(t, "b", "1/1h"), limiter.Shadow)}, func(l *limiter.Limiter) error {
				_, err := l.Take(t.Context(), "k", 1)
				_, again := l.Take(t.Context(), "k", 1)
				return errors.Join(err, again)
			}, 1},
		{"two rules of which one applies", newStore(), []limiter.Rule{noted, elsewhere},
			func(l *limiter.Limiter) error { l.Admit(get()).Done(200); return nil }, 1},
		// Other costs than one, a slot to come, no rule that applies, and other deciders than the
		// store.
		{"two units", newStore(), []limiter.Rule{noted},
			func(l *limiter.Limiter) error { _, err := l.Take(t.Context(), "k", 2); return err }, 0},
		{"one of many units", newStore(), []limiter.Rule{rule(t, "a", "1/1s")},
			func(l *limiter.Limiter) error { _, err := l.TakeUpTo(t.Context(), "k", 9); return err }, 0},
		{"no unit", newStore(), []limiter.Rule{noted},
			func(l *limiter.Limiter) error { _, err := l.Take(t.Context(), "k", 0); return err }, 0},
		{"a slot to come", newStore(), []limiter.Rule{waiting(t, "a", "1/10s burst=1", time.Minute)},
			func(l *limiter.Limiter) error {
				_, err := l.Reserve(t.Context(), "k", 1)
				_, later := l.Reserve(t.Context(), "k", 1)
				return errors.Join(err, later)
			}, 1},
		{"a store that took no unit", idle, []limiter.Rule{noted},
			func(l *limiter.Limiter) error { _, err := l.Take(t.Context(), "k", 1); return err }, 0},
		{"no rule", newStore(), []limiter.Rule{elsewhere},
			func(l *limiter.Limiter) error { l.Admit(get()).Done(200); return nil }, 0},
		{"a debit", newStore(), []limiter.Rule{rule(t, "a", "9/1h fixed-window debt=9")},
			func(l *limiter.Limiter) error {
				l.AdmitParts(t.Context(), []limiter.Part{{Request: get(), Verb: core.Debit, Cost: 1}}).Done(200)
				return nil
			}, 0},
		{"the fallback", byFallback, []limiter.Rule{noted},
			func(l *limiter.Limiter) error { _, err := l.Take(t.Context(), "k", 1); return err }, 0},
		{"a denial in shadow", newStore(), []limiter.Rule{noted, withOnLimit(unlisted, limiter.Shadow)},
			func(l *limiter.Limiter) error {
				_, err := l.Take(t.Context(), "mallory", 1)
				return err
			}, 0},
	} {
		plain, observed := 0, 0
		l := configured(t, limiter.Config{Store: row.store, Rules: row.rules, Observer: counters{
			func(context.Context, *events.Request) { observed++ },
			func(events.Plain) { plain++ },
			func(string) events.RuleCounter { return countFunc(func(context.Context, events.Verdict) {}) },
		}})

		requests := 1
		// These rows send two requests. Each request is counted or observed, once.
		if row.name == "a slot to come" || strings.HasPrefix(row.name, "a refusal") ||
			strings.HasSuffix(row.name, "in shadow") && strings.HasPrefix(row.name, "two") {
			requests = 2
		}

		if err := row.do(l); err != nil || plain != row.plain || plain+observed != requests {
			t.Errorf("%s: %d counted, %d observed, %v", row.name, plain, observed, err)
		}
	}
}

// A counter gets what became of a plain request, and of it under each rule.
func TestCountersGetEachDecision(t *testing.T) {
	var seen []string
	l := configured(t, limiter.Config{Store: newStore(),
		Rules: []limiter.Rule{rule(t, "a", "9/1h fixed-window"),
			withOnLimit(rule(t, "b", "1/1h fixed-window"), limiter.Shadow),
			rule(t, "c", "2/1h fixed-window"), rule(t, "d", "2/1h fixed-window")},
		Observer: counters{
			func(_ context.Context, e *events.Request) { seen = append(seen, "observed "+e.Verdict.String()) },
			func(r events.Plain) { seen = append(seen, fmt.Sprint(r)) },
			func(rule string) events.RuleCounter {
				return countFunc(func(_ context.Context, v events.Verdict) { seen = append(seen, rule+" "+v.String()) })
			},
		}})

	for range 3 {
		if _, err := l.Take(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
	}

	// The first request is plain. The second is not, as the rule in shadow refuses it. The third is
	// refused by two rules, and c, the first of them, has the blame.
	want := []string{
		"a allowed", "b allowed", "c allowed", "d allowed", "{allowed  0}",
		"observed shadow_refused",
		"a overruled", "b shadow_refused", "c refused", "d refused", "{refused c 0}",
	}

	if !slices.Equal(seen, want) {
		t.Errorf("seen\n  %s\nwant\n  %s", strings.Join(seen, "\n  "), strings.Join(want, "\n  "))
	}
}

// A rule without a counter, and one whose counter could not be had, are observed. A panic of a
// counter is an error of the limiter, as that of an observer is.
func TestCounterThatIsNoneOrPanics(t *testing.T) {
	var seen []string
	note := func(format string, args ...any) { seen = append(seen, fmt.Sprintf(format, args...)) }

	l := configured(t, limiter.Config{Store: newStore(),
		OnError: func(_ context.Context, err error) { note("%v", err) },
		Rules:   []limiter.Rule{rule(t, "none", "9/1s"), rule(t, "lost", "9/1s"), rule(t, "bad", "9/1s")},
		Observer: counters{
			func(_ context.Context, e *events.Request) { note("observed %s", e.Rules[0].Name) },
			func(r events.Plain) { note("counted %s", r.Verdict) },
			func(rule string) events.RuleCounter {
				switch rule {
				case "none":
					return nil
				case "lost":
					panic("no counter")
				}
				return countFunc(func(context.Context, events.Verdict) { panic("counting") })
			},
		}})

	for i, name := range []string{"none", "lost", "bad"} {
		// Each rule alone, in turn.
		if err := l.SetSelectedRules([]limiter.Rule{rule(t, "none", "9/1s"), rule(t, "lost", "9/1s"),
			rule(t, "bad", "9/1s")},
			func(_ core.Request, into []int) []int { return append(into, i) }); err != nil {
			t.Fatal(err)
		}

		seen = append(seen, name)
		if a := l.Admit(get()); a.Outcome() != limiter.Pass {
			t.Errorf("%s: %s", name, a.Outcome())
		}
	}

	// A counter is asked for at each change of the rules, so the one that panics is reported each
	// time.
	lost := `the observer: panic: "no counter"`
	want := []string{lost, lost, "none", "observed none", lost, "lost", "observed lost", lost, "bad",
		`the observer: panic: "counting"`}

	if !slices.Equal(seen, want) {
		t.Errorf("seen\n  %s\nwant\n  %s", strings.Join(seen, "\n  "), strings.Join(want, "\n  "))
	}
}

// Each request is told once, while the rules change between those under which it is plain and
// those under which it is not.
func TestCountersAcrossChangesOfRules(t *testing.T) {
	const callers, each = 4, 2000
	var observed, counted, decided atomic.Int64
	a, b, c := rule(t, "a", "1000000/1s"), rule(t, "b", "1000000/1s"), rule(t, "c", "1000000/1s")

	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{a}, Observer: counters{
		func(context.Context, *events.Request) { observed.Add(1) },
		func(events.Plain) { counted.Add(1) },
		func(rule string) events.RuleCounter {
			// Under c a request is observed, and under the others it is counted.
			if rule == "c" {
				return nil
			}
			return countFunc(func(context.Context, events.Verdict) { decided.Add(1) })
		},
	}})

	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				if d, err := l.Allow(context.Background(), "k", 1); err != nil || !d.Allowed {
					t.Error(d, err)
				}
			}
		})
	}

	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()

	// The rules change as often as they can while the callers run.
	for i := 0; ; i++ {
		select {
		case <-ended:
			// None was lost, and none told twice.
			if n := counted.Load() + observed.Load(); n != callers*each || decided.Load() < counted.Load() {
				t.Errorf("%d requests are told of, want %d, and %d decisions", n, callers*each, decided.Load())
			}
			return
		default:
		}

		if err := l.SetRules([][]limiter.Rule{{a}, {a, b}, {b, c}, nil}[i%4]); err != nil {
			t.Error(err)
		}
	}
}
