package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/events"
	"github.com/headgate/headgate/limiter"
)

// counters is a Counter of functions.
type counters struct {
	events.Func
	of func(rule string) events.RuleCounter
}

func (c counters) RuleCounter(rule string) events.RuleCounter { return c.of(rule) }

// What is plain needs more than the verdict.
func TestOnlyPlainRequestsAreCounted(t *testing.T) {
	byFallback := storeFunc(func(_ context.Context, _ []core.Op, out []core.Decision) error {
		out[0] = core.Decision{Allowed: true, Taken: 1, Fallback: true}
		return nil
	})
	unlisted := listed(t, "b", "1/1h")
	elsewhere := rule(t, "b", "9/1s")
	elsewhere.Key = func(core.Request) (string, bool) { return "", false }
	noted := rule(t, "a", "9/1s")
	for _, row := range []struct {
		name  string
		store core.Store
		rules []limiter.Rule
		do    func(*limiter.Limiter) error
		plain int
	}{
		{"one unit under one rule", newStore(), []limiter.Rule{noted}, func(l *limiter.Limiter) error { _, err := l.Allow(t.Context(), "k", 1); return err }, 1},
		{"a refusal", newStore(), []limiter.Rule{rule(t, "a", "1/1h fixed-window")}, func(l *limiter.Limiter) error {
			_, err := l.Take(t.Context(), "k", 1)
			_, again := l.Take(t.Context(), "k", 1)
			return errors.Join(err, again)
		}, 2},
		{"a refusal beside a denial in shadow", newStore(), []limiter.Rule{rule(t, "a", "1/1h fixed-window"), withOnLimit(unlisted, limiter.Shadow)}, func(l *limiter.Limiter) error {
			_, err := l.Take(t.Context(), "mallory", 1)
			_, again := l.Take(t.Context(), "mallory", 1)
			return errors.Join(err, again)
		}, 0},
		{"two rules", newStore(), []limiter.Rule{noted, rule(t, "b", "9/1s")}, func(l *limiter.Limiter) error { _, err := l.Take(t.Context(), "k", 1); return err }, 0},
		{"two rules of which one applies", newStore(), []limiter.Rule{noted, elsewhere}, func(l *limiter.Limiter) error { l.Admit(get()).Done(200); return nil }, 1},
		{"two units", newStore(), []limiter.Rule{noted}, func(l *limiter.Limiter) error { _, err := l.Take(t.Context(), "k", 2); return err }, 0},
		{"one of many units", newStore(), []limiter.Rule{rule(t, "a", "1/1s")}, func(l *limiter.Limiter) error { _, err := l.TakeUpTo(t.Context(), "k", 9); return err }, 0},
		{"no unit", newStore(), []limiter.Rule{noted}, func(l *limiter.Limiter) error { _, err := l.Take(t.Context(), "k", 0); return err }, 0},
		{"a slot to come", newStore(), []limiter.Rule{waiting(t, "a", "1/10s burst=1", time.Minute)}, func(l *limiter.Limiter) error {
			_, err := l.Reserve(t.Context(), "k", 1)
			_, later := l.Reserve(t.Context(), "k", 1)
			return errors.Join(err, later)
		}, 1},
		{"the fallback", byFallback, []limiter.Rule{noted}, func(l *limiter.Limiter) error { _, err := l.Take(t.Context(), "k", 1); return err }, 0},
		{"a denial in shadow", newStore(), []limiter.Rule{noted, withOnLimit(unlisted, limiter.Shadow)}, func(l *limiter.Limiter) error {
			_, err := l.Take(t.Context(), "mallory", 1)
			return err
		}, 0},
	} {
		plain, observed := 0, 0
		l := configured(t, limiter.Config{Store: row.store, Rules: row.rules, Observer: counters{
			func(context.Context, *events.Request) { observed++ },
			func(string) events.RuleCounter {
				return countFunc(func(_ context.Context, v events.Verdict, d *core.Decision) {
					plain++
					if d.Allowed != (v == events.Allowed) || d.Allowed != (d.Taken == 1) {
						t.Errorf("%s: %+v", row.name, *d)
					}
				})
			},
		}})
		requests := 1
		if row.name == "a slot to come" || strings.HasPrefix(row.name, "a refusal") {
			requests = 2
		}
		if err := row.do(l); err != nil || plain != row.plain || plain+observed != requests {
			t.Errorf("%s: %d counted, %d observed, %v", row.name, plain, observed, err)
		}
	}
}

// A rule without a counter, and one whose counter could not be had, are observed. A panic of a
// counter is an error of the limiter, as that of an observer is.
func TestCounterThatIsNoneOrPanics(t *testing.T) {
	var seen []string
	note := func(format string, args ...any) { seen = append(seen, fmt.Sprintf(format, args...)) }
	l := configured(t, limiter.Config{Store: newStore(), OnError: func(_ context.Context, err error) { note("%v", err) },
		Rules: []limiter.Rule{rule(t, "none", "9/1s"), rule(t, "lost", "9/1s"), rule(t, "bad", "9/1s")},
		Observer: counters{
			func(_ context.Context, e *events.Request) { note("observed %s", e.Rules[0].Name) },
			func(rule string) events.RuleCounter {
				switch rule {
				case "none":
					return nil
				case "lost":
					panic("no counter")
				}
				return countFunc(func(context.Context, events.Verdict, *core.Decision) { panic("counting") })
			},
		}})
	for i, name := range []string{"none", "lost", "bad"} {
		if err := l.SetSelectedRules([]limiter.Rule{rule(t, "none", "9/1s"), rule(t, "lost", "9/1s"), rule(t, "bad", "9/1s")},
			func(_ core.Request, into []int) []int { return append(into, i) }); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, name)
		if a := l.Admit(get()); a.Outcome() != limiter.Pass {
			t.Errorf("%s: %s", name, a.Outcome())
		}
	}
	lost := `the observer: panic: "no counter"`
	want := []string{lost, lost, "none", "observed none", lost, "lost", "observed lost", lost, "bad", `the observer: panic: "counting"`}
	if !slices.Equal(seen, want) {
		t.Errorf("seen\n  %s\nwant\n  %s", strings.Join(seen, "\n  "), strings.Join(want, "\n  "))
	}
}

// Each request is told once, while the rules change between those under which it is plain and
// those under which it is not.
func TestCountersAcrossChangesOfRules(t *testing.T) {
	const callers, each = 4, 2000
	var observed atomic.Int64
	counted := map[string]*atomic.Int64{"a": {}, "b": {}}
	a, b := rule(t, "a", "1000000/1s"), rule(t, "b", "1000000/1s")
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{a}, Observer: counters{
		func(context.Context, *events.Request) { observed.Add(1) },
		func(rule string) events.RuleCounter {
			return countFunc(func(context.Context, events.Verdict, *core.Decision) { counted[rule].Add(1) })
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
	for i := 0; ; i++ {
		select {
		case <-ended:
			if n := counted["a"].Load() + counted["b"].Load() + observed.Load(); n != callers*each {
				t.Errorf("%d requests are told of, want %d", n, callers*each)
			}
			return
		default:
		}
		if err := l.SetRules([][]limiter.Rule{{a}, {a, b}, {b}, nil}[i%4]); err != nil {
			t.Error(err)
		}
	}
}
