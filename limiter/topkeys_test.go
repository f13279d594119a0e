package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/store/memstore"
)

// tops returns a line for each rule, such as "a: refused x 2, admitted x 1 y 1".
func tops(l *limiter.Limiter) (lines []string) {
	for _, t := range l.TopKeys() {
		lines = append(lines, t.Rule+": refused"+keys(t.Refused)+", admitted"+keys(t.Admitted))
	}
	return lines
}

func keys(s topkeys.Summary) (text string) {
	for _, k := range s.Keys {
		text += fmt.Sprintf(" %s %d", k.Key, k.Count)
	}
	return text
}

func wantTops(t *testing.T, l *limiter.Limiter, want ...string) {
	t.Helper()
	if got := tops(l); !slices.Equal(got, want) {
		t.Errorf("top keys %q, want %q", got, want)
	}
}

func TestTopKeys(t *testing.T) {
	byKey := rule(t, "each", "2/1h")
	shadow := withOnLimit(rule(t, "shadow", "1/1h"), limiter.Shadow)
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{byKey, shadow}, Top: 3})
	defer l.Close()

	wantTops(t, l, "each: refused, admitted", "shadow: refused, admitted")
	// d asks once, c twice, b three times and a four times, under a limit of two.
	for i, key := range []string{"d", "c", "b", "a"} {
		for range i + 1 {
			if _, err := l.Allow(t.Context(), key, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What a rule refuses is overruled under a shadow rule that would let it pass.
	wantTops(t, l, "each: refused a 2 b 1, admitted a 2 b 2 c 2", "shadow: refused a 3 b 2 c 1, admitted a 1 b 1 c 1")

	top, ok := l.Top("each")
	if !ok || keys(top.Refused) != " a 2 b 1" || top.Refused.Total != 3 || top.Admitted.Total != 7 {
		t.Errorf("Top returns %+v, %v", top, ok)
	}
	if _, ok := l.Top("other"); ok {
		t.Error("Top returns keys of a rule that does not exist")
	}

	// Rules keep what was counted as long as they keep their names.
	if err := l.SetRules([]limiter.Rule{rule(t, "new", "1/1h"), rule(t, "each", "9/1h token-bucket")}); err != nil {
		t.Fatal(err)
	}
	wantTops(t, l, "new: refused, admitted", "each: refused a 2 b 1, admitted a 2 b 2 c 2")
}

func TestTopKeysOff(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "a", "1/1h"))
	if _, err := l.Allow(t.Context(), "k", 1); err != nil {
		t.Fatal(err)
	}

	if _, ok := l.Top("a"); ok || l.TopKeys() != nil {
		t.Error("a limiter without Config.Top has top keys")
	}

	for _, top := range []int{-1, 1001} {
		want := fmt.Sprintf("Top: %d is not within 0 to 1000", top)
		if _, err := limiter.New(limiter.Config{Top: top}); err == nil || err.Error() != want {
			t.Errorf("New returns %v, want %s", err, want)
		}
	}
}

// Each verdict is counted, and adds its key to the list that it belongs to.
func TestTopKeysVerdicts(t *testing.T) {
	down := brokenStore(func() error { return errors.New("down") })
	for _, row := range []struct {
		name  string
		store core.Store
		rule  limiter.Rule
		costs []int64 // of requests of one key
		want  map[events.Verdict]int64
		tops  string
	}{
		// What was refused by a rule counts as refused, also in shadow. A store that fails adds no
		// key.
		{"a limit", newStore(), rule(t, "a", "1/1h"), []int64{1, 1, 1},
			map[events.Verdict]int64{events.Allowed: 1, events.Refused: 2}, "a: refused k 2, admitted k 1"},
		{"a cost", newStore(), rule(t, "a", "1/1h"), []int64{2}, map[events.Verdict]int64{events.Impossible: 1},
			"a: refused k 1, admitted"},
		{"a ban", newStore(), banning(t, "a", "1/1h"), []int64{1, 1, 1, 1, 1},
			map[events.Verdict]int64{events.Allowed: 1, events.Refused: 2, events.Banned: 2},
			"a: refused k 4, admitted k 1"},
		{"degrade", newStore(), withOnLimit(rule(t, "a", "1/1h"), limiter.Degrade), []int64{1, 1},
			map[events.Verdict]int64{events.Allowed: 1, events.Degraded: 1}, "a: refused k 1, admitted k 1"},
		{"shadow", newStore(), withOnLimit(rule(t, "a", "1/1h"), limiter.Shadow), []int64{1, 1},
			map[events.Verdict]int64{events.Allowed: 1, events.ShadowRefused: 1}, "a: refused k 1, admitted k 1"},
		{"open", down, rule(t, "a", "1/1h"), []int64{1, 1}, map[events.Verdict]int64{events.FailedOpen: 2},
			"a: refused, admitted"},
		{"closed", down, limiter.Rule{Name: "a", Limit: limit(t, "1/1h"), Key: everyone,
			OnStoreError: limiter.FailClosed}, []int64{1}, map[events.Verdict]int64{events.FailedClosed: 1},
			"a: refused, admitted"},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := configured(t, limiter.Config{Store: row.store, Rules: []limiter.Rule{row.rule}, Top: 1})
			defer l.Close()
			for _, cost := range row.costs {
				_, _ = l.Take(t.Context(), "k", cost) // a store that fails is no error of the test
			}

			wantTops(t, l, row.tops)
			var want [events.Verdicts]int64
			for v, n := range row.want {
				want[v] = n
			}
			if got := l.Status().Rules[0].Verdicts; got != want {
				t.Errorf("verdicts %v, want %v", got, want)
			}
		})
	}
}

// A shadow rule denies a caller by its lists, beside a rule that counts it.
func TestTopKeysOutsideTheStep(t *testing.T) {
	l := configured(t, limiter.Config{Store: newStore(), Top: 1, Rules: []limiter.Rule{
		withOnLimit(listed(t, "shadow", "10/1m"), limiter.Shadow), rule(t, "limit", "9/1h")}})
	defer l.Close()
	if _, err := l.Take(t.Context(), "mallory", 1); err != nil {
		t.Fatal(err)
	}
	wantTops(t, l, "shadow: refused mallory 1, admitted", "limit: refused, admitted mallory 1")
}

func BenchmarkTop(b *testing.B) {
	for _, top := range []int{0, 100} {
		b.Run(fmt.Sprintf("Top %d", top), func(b *testing.B) {
			l := configured(b, limiter.Config{Store: memstore.MustNew(memstore.Options{}),
				Rules: []limiter.Rule{rule(b, "a", "1000000/1s")}, Top: top})
			defer l.Close()
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Allow(ctx, "203.0.113.7", 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
