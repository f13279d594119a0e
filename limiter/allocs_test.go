//go:build !race

package limiter_test

import (
	"context"
	"fmt"
	"math/bits"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
)

// Under the race detector a sync.Pool drops some items.

func TestAdmissionAllocatesOnlyHeaderText(t *testing.T) {
	l := newLimiter(t, nothing{}, rule(t, "a", "10/1m"), rule(t, "b", "100/1h"))
	var r core.Request = get()
	got := testing.AllocsPerRun(1000, func() {
		a := l.Admit(r)
		_ = a.Headers()
		a.Done(200)
	})
	if got != 1 {
		t.Errorf("%v allocations, want 1", got)
	}
}

// A request that may wait for a lease and need not costs what one under Reject does.
func TestWaitForLeaseAllocatesNothingWithoutWaiting(t *testing.T) {
	allocs := func(r limiter.Rule) float64 {
		l := newLimiter(t, memstore.MustNew(memstore.Options{}), r)
		r0 := core.Request(get())
		return testing.AllocsPerRun(1000, func() { l.Admit(r0).Done(200) })
	}
	reject := rule(t, "a", "10 concurrent ttl=1m")
	if got, want := allocs(withOnLimit(reject, limiter.Wait(time.Minute))), allocs(reject); got != want {
		t.Errorf("%v allocations, want %v", got, want)
	}
}

// The memory of its Result is most of what a Take costs. Up to 512 bytes need no header. With words
// of 32 bits it is less.
func TestResultIsSmall(t *testing.T) {
	for name, row := range map[string]struct {
		config limiter.Config
		bytes  uint64
		allocs float64
	}{
		"in memory":           {limiter.Config{}, 176, 1},
		"refused in memory":   {limiter.Config{Rules: []limiter.Rule{rule(t, "none", "1/1h")}}, 1216, 4},
		"with top keys":       {limiter.Config{Top: 1}, 576, 1},
		"over another store":  {limiter.Config{Store: nothing{}}, 576, 1},
		"in memory, 2 rules":  {limiter.Config{Rules: []limiter.Rule{rule(t, "b", "1000000/1h")}}, 336, 2},
		"in memory, 10 rules": {limiter.Config{Rules: manyRules(t, 9)}, 1072, 2},
	} {
		row.config.Rules = append(row.config.Rules, rule(t, "a", "1000000/1h"))
		l := configured(t, row.config)
		take := func() {
			if _, err := l.Take(t.Context(), "k", 1); err != nil {
				t.Error(err)
			}
		}
		if got := testing.AllocsPerRun(100, take); got != row.allocs {
			t.Errorf("%s: %v allocations, want %v", name, got, row.allocs)
		}

		const n = 10000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			take()
		}
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) / n; got != row.bytes && bits.UintSize == 64 {
			t.Errorf("%s: %d bytes, want %d", name, got, row.bytes)
		}
	}
}

func manyRules(t *testing.T, n int) (rules []limiter.Rule) {
	for i := range n {
		rules = append(rules, rule(t, fmt.Sprint("r", i), "1000000/1h"))
	}
	return rules
}

// What a selection needs is one object beside the Result.
func TestTakeRequestUnderASelectionAllocatesTwice(t *testing.T) {
	a := rule(t, "a", "10/1m")
	l := newLimiter(t, nothing{}, a)
	first := func(_ core.Request, into []int) []int { return append(into, 0) }
	if err := l.SetSelectedRules([]limiter.Rule{a}, first); err != nil {
		t.Fatal(err)
	}

	var r core.Request = get()
	got := testing.AllocsPerRun(1000, func() {
		if res, err := l.TakeRequest(r); err != nil || !res.Allowed() {
			t.Errorf("%v", err)
		}
	})
	if got != 2 {
		t.Errorf("%v allocations, want 2", got)
	}
}

func TestTakeUpToAllocatesNothing(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "a", "1000000/1m"), rule(t, "b", "1000000/1h"))
	take := func() {
		if n, err := l.TakeUpTo(t.Context(), "k", 2); err != nil || n != 2 {
			t.Errorf("%d, %v", n, err)
		}
	}
	take()
	if got := testing.AllocsPerRun(1000, take); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestAllowAllocatesNothing(t *testing.T) {
	for _, s := range []core.Store{nothing{}, memstore.MustNew(memstore.Options{})} {
		l := newLimiter(t, s, rule(t, "a", "10000/1m"), rule(t, "b", "10000/1h"))
		got := testing.AllocsPerRun(1000, func() {
			if d, err := l.Allow(t.Context(), "k", 1); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		})
		if got != 0 {
			t.Errorf("%T: %v allocations", s, got)
		}
	}
}

// Top keys cost no allocation, whether a key has a counter or not.
func TestAllowWithTopAllocatesNothing(t *testing.T) {
	l := configured(t, limiter.Config{Store: nothing{},
		Rules: []limiter.Rule{rule(t, "a", "10/1m"), rule(t, "b", "100/1h")}, Top: 1})

	keys := make([]string, 3001)
	// More keys than there are counters, so that keys come and go in them.
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	i := 0
	ask := func() {
		if d, err := l.Allow(t.Context(), keys[i%len(keys)], 1); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
		i++
	}

	for range keys {
		ask()
	}
	if got := testing.AllocsPerRun(1000, ask); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// A ban costs an admitted request no allocation.
func TestAllowUnderABanAllocatesNothing(t *testing.T) {
	for _, s := range []core.Store{nothing{}, memstore.MustNew(memstore.Options{})} {
		l := newLimiter(t, s, banning(t, "a", "1000000/1m"))
		got := testing.AllocsPerRun(1000, func() {
			if d, err := l.Allow(t.Context(), "k", 1); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		})
		if got != 0 {
			t.Errorf("%T: %v allocations", s, got)
		}
	}
}

// A limit of its own and the lists cost no allocation, once the limit is known.
func TestAllowWithOverrideAndAccessAllocatesNothing(t *testing.T) {
	pro, ban := limit(t, "100/1m"), limiter.BannedUntil(time.Now().Add(time.Hour))
	r := listed(t, "a", "10/1m")
	r.Override = func(_ context.Context, key string) (core.Limit, bool, error) {
		if key == "eve" {
			return core.Limit{}, false, ban
		}
		return pro, true, nil
	}
	l := newLimiter(t, nothing{}, r)

	for key, passes := range map[string]bool{"bob": true, "carol": true, "mallory": false, "eve": false} {
		// A key that is limited, one that is allowed, one that is denied and one that is banned.
		ask := func() {
			if d, err := l.Allow(t.Context(), key, 1); err != nil || d.Allowed != passes {
				t.Errorf("%s: %+v, %v", key, d, err)
			}
		}
		ask()
		if got := testing.AllocsPerRun(1000, ask); got != 0 {
			t.Errorf("%s: %v allocations", key, got)
		}
	}
}

// An observer that counts costs no allocation, and hooks that are not nil none either.
func TestEventsAllocateNothing(t *testing.T) {
	var counts [events.Verdicts]int
	o := events.Func(func(_ context.Context, e *events.Request) {
		for i := range e.Rules {
			counts[e.Rules[i].Verdict]++
		}
	})

	l := configured(t, limiter.Config{Store: newStore(), Observer: o, Hooks: (&told{}).hooks(),
		Rules: []limiter.Rule{rule(t, "a", "5/1s"), rule(t, "b", "9/1s")}})
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() { _, _ = l.Allow(ctx, "k", 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}

	if counts[events.Allowed] != 10 || counts[events.Refused] != 996 || counts[events.Overruled] != 996 {
		t.Errorf("%v", counts)
	}
}

// A plain request that is counted costs no allocation.
func TestCountingAllocatesNothing(t *testing.T) {
	for rules := 1; rules <= 3; rules++ {
		requests, decisions := 0, 0
		count := countFunc(func(context.Context, events.Verdict) { decisions++ })
		c := limiter.Config{Store: newStore(),
			Observer: counters{func(context.Context, *events.Request) { t.Error("observed") },
				func(events.Plain) { requests++ }, func(string) events.RuleCounter { return count }}}
		for i := range rules {
			c.Rules = append(c.Rules, rule(t, fmt.Sprint("r", i), "500/1h fixed-window"))
		}
		l, ctx := configured(t, c), t.Context()

		got := testing.AllocsPerRun(1000, func() { _, _ = l.Allow(ctx, "k", 1) })
		if got != 0 || requests != 1001 || decisions != 1001*rules {
			t.Errorf("%d rules: %v allocations, %d requests and %d decisions counted", rules, got, requests, decisions)
		}
	}
}

// Without a Warn, and with one that nothing hears of, a decision allocates as before.
func TestNearAllocatesNothing(t *testing.T) {
	heard := 0
	for name, hooks := range map[string]*events.Hooks{"unheard": nil, "heard": {Near: func(events.Near) { heard++ }}} {
		l := configured(t, limiter.Config{Store: memstore.MustNew(memstore.Options{}), Hooks: hooks,
			Rules: []limiter.Rule{warning(t, "a", "100000/1h fixed-window", 1)}})
		key := "k"
		if n := testing.AllocsPerRun(100, func() { _, _ = l.Allow(t.Context(), key, 1) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if heard != 1 {
		t.Errorf("heard %d times", heard)
	}
}
