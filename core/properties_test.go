package core_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/storetest"
)

func TestDecideProperties(t *testing.T) {
	storetest.Properties(t, storetest.NewModel)
}

func mustParse(t testing.TB, text string) core.Limit {
	t.Helper()
	l, err := core.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// everyAlgorithm returns limits of every algorithm.
func everyAlgorithm(t testing.TB) []core.Limit {
	t.Helper()
	var ls []core.Limit
	for _, text := range []string{"7/3s burst=5", "5/3s fixed-window", "5/3s fixed-window aligned", "5/3s sliding-log",
		"5/3s sliding-window", "5/3s token-bucket burst=9", "5 concurrent ttl=3s"} {
		ls = append(ls, mustParse(t, text))
	}
	return ls
}

func clone(s *core.State) *core.State {
	c := *s
	c.Credits = slices.Clone(s.Credits)
	c.Log, c.Others, c.Leases = slices.Clone(s.Log), slices.Clone(s.Others), slices.Clone(s.Leases)
	return &c
}

func decide(s *core.State, now int64, op core.Op) core.Decision {
	var out [1]core.Decision
	core.Decide([]core.Op{op}, []*core.State{s}, now, out[:])
	return out[0]
}

func TestStateUnchangedMeansTheSameLater(t *testing.T) {
	limits := everyAlgorithm(t)

	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom(limits).Draw(t, "limit")
		s, now := new(core.State), int64(1e15)

		// Few units and long pauses, so that the takes are now allowed and now refused.
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			now += rapid.Int64Range(0, 2e6).Draw(t, "later")
			op := core.Op{Verb: rapid.SampledFrom([]core.Verb{core.Take, core.Peek}).Draw(t, "verb"), Limit: limit,
				Cost: rapid.Int64Range(0, 6).Draw(t, "cost"), Lease: rapid.StringMatching("[a-d]").Draw(t, "lease")}

			before := clone(s)
			before.Changed, s.Changed = false, false
			d := decide(s, now, op)

			// Changed says whether a store has to write, and only a Take that got units does.
			if s.Changed != (op.Verb == core.Take && d.Allowed && op.Cost > 0) {
				t.Fatalf("%s of %d, allowed %v: Changed is %v", op.Verb, op.Cost, d.Allowed, s.Changed)
			}

			// A store throws an unchanged state away and keeps the old: both must answer alike,
			// later too.
			if s.Changed {
				continue
			}
			later := now + rapid.Int64Range(0, 4e6).Draw(t, "peek")
			peek := core.Op{Verb: core.Peek, Limit: limit, Cost: 3}
			if old, settled := decide(before, later, peek), decide(clone(s), later, peek); old != settled {
				t.Fatalf("%+v before, %+v after a step that changed nothing", old, settled)
			}
		}
	})
}

// An operation alone is decided as it is beside a Peek of another key.
func TestDecideAloneAsBesideAnother(t *testing.T) {
	// Decide has a path of its own for a step of a single op; limits with whole and with broken
	// microseconds take different turns of it.
	limits := append(everyAlgorithm(t), mustParse(t, "3/1s burst=4"), mustParse(t, "4/2s token-bucket burst=5"))
	rapid.Check(t, func(t *rapid.T) {
		alone, now := new(core.State), start
		limit := rapid.SampledFrom(limits).Draw(t, "limit")
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			// A clock that steps back, and a limit that was changed under the same key, are drawn
			// now and then.
			now += rapid.Int64Range(-1e5, 2e6).Draw(t, "later")
			if rapid.IntRange(0, 9).Draw(t, "another limit") == 0 {
				limit = rapid.SampledFrom(limits).Draw(t, "limit")
			}

			op := core.Op{Verb: rapid.SampledFrom([]core.Verb{core.Take, core.Peek}).Draw(t, "verb"), Limit: limit,
				Cost: rapid.Int64Range(0, 10).Draw(t, "cost"), Lease: rapid.StringMatching("[a-d]").Draw(t, "lease"),
				Soft: rapid.Bool().Draw(t, "soft")}
			if limit.Books() {
				op.MaxWait = time.Duration(rapid.Int64Range(0, 2e6).Draw(t, "max wait")) * time.Microsecond
			}

			// The Peek beside it is of a fresh key and has no part in the decision; it leads Decide
			// by the other path.
			alone.Changed = false
			beside, out := clone(alone), make([]core.Decision, 2)
			core.Decide([]core.Op{op, {Verb: core.Peek, Limit: limits[0]}}, []*core.State{beside, new(core.State)},
				now, out)
			if d := decide(alone, now, op); d != out[0] || !reflect.DeepEqual(alone, beside) {
				t.Fatalf("%+v at %d:\nalone  %+v %+v\nbeside %+v %+v", op, now, d, alone, out[0], beside)
			}
		}
	})
}

// A bucket that is kept busy and is smaller than its quota counts
// from an instant up to a period ago, and is locked out for at most that.
func TestClockStepBackLocksOutAtMostAPeriod(t *testing.T) {
	limit := mustParse(t, "999983/24h burst=2")
	s, now := new(core.State), int64(1e15)
	for range 100_000 {
		d := decide(s, now, core.Op{Limit: limit, Cost: 1})
		now += d.RetryAfter.Microseconds()
	}
	for _, step := range []time.Duration{time.Second, time.Hour, 24 * time.Hour} {
		back := decide(clone(s), now-step.Microseconds(), core.Op{Verb: core.Peek, Limit: limit, Cost: 1})
		if refill := 172_803 * time.Microsecond; back.RetryAfter > step+refill || back.RetryAfter > limit.Period {
			t.Errorf("%s back: %+v", step, back)
		}
	}
}

func TestDecideAllocatesNothing(t *testing.T) {
	for _, limit := range everyAlgorithm(t)[:3] {
		ops, s, now := []core.Op{{Limit: limit, Cost: 1}}, new(core.State), int64(1e15)
		states, out := []*core.State{s}, make([]core.Decision, 1)
		allocs := testing.AllocsPerRun(1000, func() {
			now += 100_000
			core.Decide(ops, states, now, out)
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", limit, allocs)
		}
	}
}

func TestCheckOpsNamesEveryFault(t *testing.T) {
	gcra, leases, month := mustParse(t, "5/1s"), mustParse(t, "5 concurrent ttl=1s"), mustParse(t, "5/month")

	// A fault that CheckOps lets through is one that a store would meet halfway through a step.
	rows := []struct {
		what string
		op   core.Op
		want string // "" if the op is sound
	}{
		{"a take", core.Op{Limit: gcra, Cost: 1}, ""},
		{"a cost above the limit", core.Op{Limit: gcra, Cost: 1 << 62}, ""},
		{"a longest wait", core.Op{Limit: gcra, MaxWait: core.MaxBooking}, ""},
		{"a peek without a lease", core.Op{Verb: core.Peek, Limit: leases, Cost: 1}, ""},
		{"a take of nothing without a lease", core.Op{Limit: leases}, ""},
		{"a reset without a lease", core.Op{Verb: core.Reset, Limit: leases}, ""},
		{"a refund of the latest", core.Op{Verb: core.Refund, Limit: gcra, Cost: 1}, ""},
		{"a verb", core.Op{Verb: 9, Limit: gcra}, "the verb is not known"},
		{"a debit", core.Op{Verb: core.Debit, Limit: gcra, Cost: 100}, ""},

		// Leases and logs have units with names and ends of their own, which a debt would not have.
		{"a debit of leases", core.Op{Verb: core.Debit, Limit: leases, Cost: 1, Lease: "x"},
			"a concurrent limit has no debt"},
		{"a debit of a log", core.Op{Verb: core.Debit, Limit: mustParse(t, "5/1s sliding-log"), Cost: 1},
			"a sliding-log limit has no debt"},
		{"a debit of what fits", core.Op{Verb: core.Debit, Limit: gcra, Cost: 1, UpTo: true},
			"only a Take can be UpTo"},

		{"an algorithm", core.Op{Limit: core.Limit{Algorithm: 7}}, "the algorithm is not known"},
		{"a negative cost", core.Op{Limit: gcra, Cost: -1}, "the cost -1 is negative"},
		{"a negative wait", core.Op{Limit: gcra, MaxWait: -1}, "the wait -1ns is not within 0 to 1h0m0s"},
		{"a wait too long", core.Op{Limit: gcra, MaxWait: core.MaxBooking + 1}, "the wait 1h0m0.000000001s is not"},

		// A calendar's windows are needed to take or to look, not to give back.
		{"a calendar without windows", core.Op{Limit: month, Cost: 1}, "the windows of its calendar are missing"},
		{"a debit by a calendar without windows", core.Op{Verb: core.Debit, Limit: month, Cost: 1},
			"the windows of its calendar are missing"},
		{"nothing by a calendar without windows", core.Op{Limit: month}, "the windows of its calendar are missing"},
		{"a reset by a calendar without windows", core.Op{Verb: core.Reset, Limit: month, Cost: 1}, ""},
		{"a refund by a calendar without windows", core.Op{Verb: core.Refund, Limit: month, Cost: 1}, ""},

		// The instants have to grow and to stay below 2^53, which is as far as Lua counts exactly.
		{"windows", core.Op{Limit: month, Cost: 1, Windows: &core.Windows{0, 1, 2, 3, 4, 5, 6, 1<<53 - 1}}, ""},
		{"windows before time", core.Op{Limit: month, Cost: 1, Windows: &core.Windows{-1, 1, 2, 3, 4, 5, 6, 7}},
			"its windows [-1 1 2 3 4 5 6 7] are not in order"},
		{"windows after time", core.Op{Limit: month, Cost: 1, Windows: &core.Windows{0, 1, 2, 3, 4, 5, 6, 1 << 53}},
			"are not in order"},
		{"an empty window", core.Op{Limit: month, Cost: 1, Windows: &core.Windows{0, 1, 2, 3, 3, 5, 6, 7}},
			"its windows [0 1 2 3 3 5 6 7] are not in order"},
		{"no lease", core.Op{Limit: leases, Cost: 1}, "a lease is missing"},
		{"no lease to release", core.Op{Verb: core.Refund, Limit: leases}, "a lease is missing"},

		// A refund speaks of a decision: its instant has to be one that a decision can have.
		{"a refund before time", core.Op{Verb: core.Refund, Limit: gcra, At: -1},
			"At -1 or ResetAfter 0s is not of a decision"},
		{"a refund after time", core.Op{Verb: core.Refund, Limit: gcra, At: 1 << 53},
			"At 9007199254740992 or ResetAfter 0s is not"},
		{"a negative reset", core.Op{Verb: core.Refund, Limit: gcra, At: 1, ResetAfter: -time.Second},
			"At 1 or ResetAfter -1s is not"},
	}

	// Each op alone has exactly its own fault.
	var all []core.Op
	for _, r := range rows {
		r.op.Rule = r.what
		all = append(all, r.op)

		err := core.CheckOps([]core.Op{r.op}, make([]core.Decision, 1))
		if (err == nil) != (r.want == "") || err != nil && (!errors.Is(err, core.ErrOp) ||
			!strings.Contains(err.Error(), r.want)) {
			t.Errorf("%s: error %v, want %q", r.what, err, r.want)
		}
	}

	// All together have all faults, each with the name of its rule.
	joined := core.CheckOps(all, make([]core.Decision, len(all)))
	for _, r := range rows {
		if r.want != "" && !strings.Contains(joined.Error(), `rule "`+r.what+`"): `) {
			t.Errorf("%s is not among all errors", r.what)
		}
	}
}

func TestCheckOpsOneKeyHasOneLimit(t *testing.T) {
	a, b := mustParse(t, "5/1s"), mustParse(t, "6/1s")

	// A key's state is of one limit; what has another rule, key or algorithm has another state.
	rows := []struct {
		what  string
		other core.Op
		wrong bool
	}{
		{"another limit", core.Op{Rule: "r", Key: "k", Limit: b}, true},
		{"the same limit", core.Op{Rule: "r", Key: "k", Limit: a}, false},
		{"another rule", core.Op{Rule: "s", Key: "k", Limit: b}, false},
		{"another key", core.Op{Rule: "r", Key: "j", Limit: b}, false},
		{"another algorithm", core.Op{Rule: "r", Key: "k", Limit: mustParse(t, "6/1s sliding-log")}, false},
	}

	for _, r := range rows {
		err := core.CheckOps([]core.Op{{Rule: "r", Key: "k", Limit: a}, r.other}, make([]core.Decision, 2))
		if (err != nil) != r.wrong || err != nil && !errors.Is(err, core.ErrOp) {
			t.Errorf("%s: %v", r.what, err)
		}
	}

	// Decisions are written into the caller's slice, so one that is too short is an error.
	if err := core.CheckOps(make([]core.Op, 2), make([]core.Decision, 1)); !errors.Is(err, core.ErrOp) {
		t.Errorf("no room for the decisions: %v", err)
	}
}

// A changed limit locks no caller out for longer than the one before took to refill: the
// whole of it is there when the key would have been fresh, or before.
func TestChangedLimitRefillsNoLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Small numbers, so that quotients of the two rates rarely come out even.
		a := rapid.SampledFrom([]core.Algorithm{core.GCRA, core.TokenBucket}).Draw(t, "algorithm")
		limit := func(name string) core.Limit {
			return core.Limit{
				Algorithm: a,
				Quota:     rapid.Int64Range(1, 12).Draw(t, name+" quota"),
				Period:    time.Duration(rapid.Int64Range(1, 10_000).Draw(t, name+" µs")) * time.Microsecond,
				Burst:     rapid.Int64Range(0, 15).Draw(t, name+" burst"),
			}
		}

		before, after := limit("before"), limit("after")
		s, now := new(core.State), start

		// The key is used under the old limit, for up to all of its capacity.
		for range rapid.IntRange(1, 5).Draw(t, "takes") {
			decide(s, now, core.Op{Limit: before, Cost: rapid.Int64Range(1, before.Capacity()).Draw(t, "cost")})
			now += rapid.Int64Range(0, 10_000).Draw(t, "later")
		}

		// A caller that was told this instant must not find a later one when the limit changes.
		fresh := now + decide(clone(s), now, core.Op{Verb: core.Peek, Limit: before}).ResetAfter.Microseconds()

		// Refusals under the new limit write nothing, but each may be the first to see the change.
		for range rapid.IntRange(0, 2).Draw(t, "refusals") {
			refused := core.Op{Limit: after, Cost: after.Capacity()}
			if d := decide(s, now, refused); d.Allowed {
				return
			} else if end := now + d.RetryAfter.Microseconds(); end > fresh {
				t.Fatalf("%s, then %s: refused until %d, fresh at %d", before, after, end-start, fresh-start)
			}
			now = rapid.Int64Range(now, fresh).Draw(t, "again")
		}

		if d := decide(s, fresh, core.Op{Limit: after, Cost: after.Capacity()}); !d.Allowed {
			t.Fatalf("%s, then %s: %+v at %d, when the key was to be fresh", before, after, d, fresh-start)
		}
	})
}
