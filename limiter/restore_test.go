// Results that are encoded and restored.

package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
)

// sent returns res as l restores it.
func sent(t *testing.T, res *limiter.Result, l *limiter.Limiter) *limiter.Result {
	t.Helper()
	data, err := res.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	back, err := l.Restore(data)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

func taken(t *testing.T, l *limiter.Limiter, cost int64) *limiter.Result {
	t.Helper()
	res, err := l.Take(t.Context(), "k", cost)
	if err != nil || !res.Allowed() {
		t.Fatalf("allowed %t, %v", res.Allowed(), err)
	}
	return res
}

func TestRestoreRefundsAndSettlesElsewhere(t *testing.T) {
	for _, text := range []string{"100/1h", "100/1h token-bucket", "100/1h fixed-window",
		"100/1h sliding-window segments=6",
		"100/1h sliding-log", "100/month tz=Europe/Berlin"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTicking()
				here, there := newLimiter(t, s, rule(t, "tokens", text)), newLimiter(t, s)
				// One take is not corrected, so that its 10 units are missing to the end.
				taken(t, here, 10)

				first, second, third := taken(t, here, 20), taken(t, here, 20), taken(t, here, 20)

				// A refund gives all 20 back, a settlement those that were not used.
				if err := sent(t, first, there).Refund(t.Context()); err != nil {
					t.Fatal(err)
				}
				wantLeft(t, here, "k", 50)

				settle(t, sent(t, second, there), tokens(5))
				wantLeft(t, here, "k", 65)

				// A sliding log has no debt, so that more than was charged cannot be settled.
				if strings.Contains(text, "log") {
					err := sent(t, third, there).Settle(t.Context(), tokens(21))
					if !errors.Is(err, core.ErrOp) || !strings.Contains(err.Error(), "no debt") {
						t.Errorf("settled above the charge under a limit without debt: %v", err)
					}
					return
				}

				// 25 more are charged than were taken, at the limiter that took nothing.
				settle(t, sent(t, third, there), tokens(45))
				wantLeft(t, here, "k", 40)
			})
		})
	}
}

// What time has given back by then is not given back again, as with the original.
func TestRestoreIsAsOfTheTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		here, there := newLimiter(t, s, rule(t, "tokens", "60/1h")), newLimiter(t, s)

		back := sent(t, taken(t, here, 20), there)
		time.Sleep(15 * time.Minute)
		taken(t, here, 30)

		if err := back.Refund(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantLeft(t, here, "k", 30) // 15 of the 20 had come back
	})
}

func TestRestoreRenewsAndReleasesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		rules := []limiter.Rule{rule(t, "jobs", "2 concurrent ttl=1m"), rule(t, "all", "9/1m fixed-window")}
		here, there := newLimiter(t, s, rules...), newLimiter(t, s, rules...)

		back := sent(t, taken(t, here, 1), there)

		// Two minutes are twice the ttl: without the renewals from there the lease would have ended
		// here.
		for range 3 {
			time.Sleep(40 * time.Second)
			if held, err := back.Renew(t.Context()); !held || err != nil {
				t.Fatalf("held %t, %v", held, err)
			}
		}

		wantLeft(t, here, "k", 1, 9)
		if !back.HoldsLeases() {
			t.Error("the restored result holds no lease")
		}

		// The second release is of a lease that has ended, and frees no other.
		for range 2 {
			if err := back.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantLeft(t, here, "k", 2, 9)
		}
	})
}

// The limit of the take counts, also where the rule has changed or is gone.
func TestRestoreKeepsTheLimitOfTheTake(t *testing.T) {
	s := newStore()
	l := newLimiter(t, s, rule(t, "tokens", "100/1h"), rule(t, "gone", "50/1h"))

	res := taken(t, l, 30)
	if err := l.SetRules([]limiter.Rule{rule(t, "tokens", "40/1h")}); err != nil {
		t.Fatal(err)
	}

	// The rule has a smaller limit and its neighbour none any longer, yet the result has both as
	// they were at the take.
	back := sent(t, res, l)
	list := back.Decisions()
	if len(list) != 2 || list[1].Rule != "gone" || list[0].Limit != limit(t, "100/1h") ||
		list[0].Decision.Taken != 30 || !list[1].Decision.Allowed {
		t.Errorf("restored %+v", list)
	}

	if err := back.Refund(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The state is fresh under the limit that is in force now.
	wantLeft(t, l, "k", 40)
}

func TestRestoreTakesNothingForARefusal(t *testing.T) {
	s := newStore()
	l := newLimiter(t, s, rule(t, "tokens", "10/1h"))

	taken(t, l, 10)
	res, err := l.Take(t.Context(), "k", 1<<60)
	if err != nil || res.Allowed() {
		t.Fatalf("allowed %t, %v", res.Allowed(), err)
	}

	// A refusal, no result and the zero Result are all restored as what gives nothing back.
	var none *limiter.Result
	for _, res := range []*limiter.Result{res, none, {}} {
		back := sent(t, res, l)
		if back.Allowed() || back.HoldsLeases() || back.Undecided() {
			t.Errorf("restored as allowed: %+v", back.Decisions())
		}
		if err := back.Refund(t.Context()); err != nil {
			t.Error(err)
		}
	}

	wantLeft(t, l, "k", 0)
}

// A Degrade rule that was over its limit is no mistake in Settle, and neither is a rule
// that was not decided.
func TestRestoreKnowsWhatWasUncounted(t *testing.T) {
	s := newStore()
	rules := []limiter.Rule{rule(t, "tokens", "100/1h"), rule(t, "soft", "5/1h")}
	rules[1].OnLimit = limiter.Degrade

	l := newLimiter(t, s, rules...)
	// soft was over its limit of 5 from the start, so that it charged nothing.
	back := sent(t, taken(t, l, 10), l)
	if !back.Degraded() {
		t.Error("restored without its mark")
	}

	// Settle skips soft, as it does for the original.
	settle(t, back, map[string]int64{"tokens": 4, "soft": 4})
	wantLeft(t, l, "k", 96, 5)

	if err := back.Settle(t.Context(), map[string]int64{"other": 1}); !errors.Is(err, core.ErrOp) {
		t.Errorf("a rule that does not exist: %v", err)
	}
}

// What the fallback has granted in one process is not given back in another, whose
// fallback never granted it, and is given back in its own.
func TestRestoreLeavesOutTheFallbackOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		shared := newTicking()
		// One primary for both processes, and a fallback for each.
		primary := storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
			if down {
				return errDown
			}
			return shared.Apply(ctx, ops, out)
		})

		open := func() *limiter.Limiter {
			fallback, err := memstore.New(memstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s, err := failover.New(primary, failover.Options{Fallback: fallback})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return newLimiter(t, s, rule(t, "tokens", "100/1h"))
		}

		here, there := open(), open()
		// The primary is down, so that each fallback grants 30 units of its own.
		res := taken(t, here, 30)
		if !res.Decisions()[0].Decision.Fallback {
			t.Fatal("the primary decided")
		}
		taken(t, there, 30)

		// There the grant of another fallback is none: it neither counts as decided nor gives units
		// back.
		back := sent(t, res, there)
		if len(back.Decisions()) != 0 || !back.Undecided() {
			t.Errorf("restored %+v, undecided %t", back.Decisions(), back.Undecided())
		}
		settle(t, back, tokens(0))
		wantLeft(t, there, "k", 70)

		// Here it is one, and 20 of the 30 units come back.
		settle(t, sent(t, res, here), tokens(10))
		wantLeft(t, here, "k", 90)
	})
}

func TestRestoreRefusesDamagedData(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "jobs", "2 concurrent ttl=1m"), rule(t, "all", "9/1m"))
	data, err := taken(t, l, 1).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}

	// No shorter text is a result: each is refused, not read beyond its end.
	for n := range data {
		if _, err := l.Restore(data[:n]); !errors.Is(err, core.ErrOp) {
			t.Fatalf("%d of %d bytes: %v", n, len(data), err)
		}
	}

	for name, bad := range map[string][]byte{
		"more bytes follow": append(data[:len(data):len(data)], 0),
		"is not known":      append([]byte{2}, data[1:]...),
		// The replaced texts are as long as the old ones, so that only their meaning is wrong.
		"needs a ttl":     []byte(strings.Replace(string(data), "2 concurrent ttl=1m", "2 concurrent       ", 1)),
		"a lease without": []byte(strings.Replace(string(data), "2 concurrent ttl=1m", "20/1m sliding-log  ", 1)),
	} {
		if _, err := l.Restore(bad); !errors.Is(err, core.ErrOp) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}

	var none *limiter.Limiter
	if _, err := none.Restore(data); err == nil {
		t.Error("a nil limiter has restored a result")
	}
}

// Whatever Restore accepts can be carried out without a panic, and its encoding restores
// the same.
func FuzzRestore(f *testing.F) {
	l := limiter.MustNew(limiter.Config{Store: newStore(), Rules: []limiter.Rule{
		{Name: "jobs", Limit: core.MustParseLimit("2 concurrent ttl=1m")},
		{Name: "all", Limit: core.MustParseLimit("9/month")}}})
	// The third is a refusal, so that the seeds have both kinds.
	for range 3 {
		res, _ := l.Take(context.Background(), "k", 1)
		data, _ := res.MarshalBinary()
		f.Add(data)
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		res, err := l.Restore(data)
		if err != nil {
			return
		}

		again, err := res.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Restore(again); err != nil {
			t.Fatalf("%q became %q: %v", data, again, err)
		}

		// None of these calls may panic, whatever their errors are.
		ctx := context.Background()
		_, _ = res.Renew(ctx)
		for _, d := range res.Decisions() {
			_ = res.Settle(ctx, map[string]int64{d.Rule: 1})
		}
		_ = res.Refund(ctx)
	})
}

// What another limiter has taken and this one corrects or ends is told by the hooks of this one.
func TestRestoreTellsCorrections(t *testing.T) {
	s := newStore()
	here := newLimiter(t, s, rule(t, "tokens", "100/1h fixed-window"), rule(t, "jobs", "5 concurrent ttl=30s"))
	var told []string
	there := configured(t, limiter.Config{Store: s, Hooks: &events.Hooks{
		Units: func(u events.Units) { told = append(told, fmt.Sprint(u.Rule, " ", u.Key, " ", u.Flow, " ", u.Units)) },
		Lease: func(e events.Lease) { told = append(told, fmt.Sprint(e.Rule, " ", e.Key, " ", e.Ended, " ", e.Held)) },
	}})

	first, second, third := taken(t, here, 1), taken(t, here, 1), taken(t, here, 1)
	// 4 units more than taken, 1 less, and a refund. Each also ends the lease.
	settle(t, sent(t, first, there), tokens(5))
	settle(t, sent(t, second, there), tokens(0))
	if err := sent(t, third, there).Refund(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"jobs k true 0s", "tokens k debited 4", "jobs k true 0s", "tokens k settled 1", "jobs k true 0s",
		"tokens k refunded 1"}
	if !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
}
