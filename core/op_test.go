package core_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

func TestGrantedIsFalseAfterAHardRefusal(t *testing.T) {
	// A caller may go on when every Take that is not Soft was allowed; no other verb and no Soft op
	// can stand in its way.
	yes, no := core.Decision{Allowed: true}, core.Decision{}
	take, soft := core.Op{}, core.Op{Soft: true}

	for name, row := range map[string]struct {
		ops  []core.Op
		out  []core.Decision
		want bool
	}{
		"no ops":                          {nil, nil, true},
		"all allowed":                     {[]core.Op{take, take}, []core.Decision{yes, yes}, true},
		"the first refused":               {[]core.Op{take, take}, []core.Decision{no, yes}, false},
		"the last refused":                {[]core.Op{take, take}, []core.Decision{yes, no}, false},
		"a soft one refused":              {[]core.Op{take, soft}, []core.Decision{yes, no}, true},
		"a peek refused":                  {[]core.Op{{Verb: core.Peek}, take}, []core.Decision{no, yes}, true},
		"more room than there are ops":    {[]core.Op{take}, []core.Decision{yes, no}, true},
		"a refund, which is never a take": {[]core.Op{{Verb: core.Refund}}, []core.Decision{no}, true},
	} {
		if got := core.Granted(row.ops, row.out); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

func TestOpRefundRepeatsTheDecision(t *testing.T) {
	take := core.Op{Soft: true, Rule: "rule", Key: "key", Limit: mustParse(t, "5/1m"), Cost: 2, MaxWait: time.Second,
		Lease: "lease"}
	d := core.Decision{Allowed: true, Origin: 3, Remaining: 3, Wait: time.Second, ResetAfter: time.Minute, At: 99}
	want := core.Op{Verb: core.Refund, Rule: "rule", Key: "key", Limit: take.Limit, Cost: 2, Lease: "lease",
		At: 99, ResetAfter: time.Minute, Origin: 3}
	if got := take.Refund(d); got != want || take.Verb != core.Take {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestOpRefundOfAnUpToTakeIsOfTheUnitsTaken(t *testing.T) {
	take := core.Op{Rule: "rule", Key: "key", Limit: mustParse(t, "5/1m"), Cost: 9, UpTo: true}
	d := core.Decision{Allowed: true, Taken: 4, Remaining: 0, ResetAfter: time.Minute, At: 99}
	want := core.Op{Verb: core.Refund, Rule: "rule", Key: "key", Limit: take.Limit, Cost: 4, At: 99,
		ResetAfter: time.Minute}
	if got := take.Refund(d); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestOpForetellLeavesUpToTakesToTheStore(t *testing.T) {
	op := core.Op{Limit: mustParse(t, "5/1s"), Cost: 1}
	d := core.Decision{RetryAfter: time.Second, ResetAfter: time.Second}
	var answer core.Decision
	if !op.Foretell(1, &d, 0, &answer) {
		t.Error("an ordinary Take is not foretold")
	}
	op.UpTo = true
	if answer = (core.Decision{}); op.Foretell(1, &d, 0, &answer) || answer != (core.Decision{}) {
		t.Errorf("an UpTo Take is foretold as %+v", answer)
	}
}

func TestOpIDIsOfRuleKeyAndAlgorithm(t *testing.T) {
	base := core.Op{Rule: "rule", Key: "key", Limit: mustParse(t, "5/1m")}

	// Op.ID names a key's state: what shares a state must have one ID, and what has its own state
	// another.
	for name, row := range map[string]struct {
		change func(*core.Op)
		same   bool
	}{
		"the rule":      {func(op *core.Op) { op.Rule = "other" }, false},
		"the key":       {func(op *core.Op) { op.Key = "other" }, false},
		"the algorithm": {func(op *core.Op) { op.Limit.Algorithm = core.FixedWindow }, false},
		"the limit":     {func(op *core.Op) { op.Limit = mustParse(t, "6/1h burst=2") }, true},
		"the verb":      {func(op *core.Op) { op.Verb, op.Cost, op.Lease = core.Peek, 5, "lease" }, true},
	} {
		op := base
		row.change(&op)
		if got := op.ID() == base.ID(); got != row.same {
			t.Errorf("%s changes: equal IDs: %v, want %v", name, got, row.same)
		}
	}
}

// refusable returns limits of each algorithm, and for each path of GCRA.
func refusable(t testing.TB) []core.Limit {
	t.Helper()
	ls := everyAlgorithm(t)
	for _, text := range []string{"6/3s", "6/3s burst=2", "3/3s burst=6", "1/1ms"} {
		ls = append(ls, mustParse(t, text))
	}
	return ls
}

func TestOpForetellAgreesWithDecide(t *testing.T) {
	limits := refusable(t)
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.SampledFrom(limits).Draw(t, "limit")

		// The story has the key refused by a Take of any cost, under any version of the limit, with
		// or without a ban.
		s, now := new(core.State), start
		var refused core.Op
		var d core.Decision
		bans := []*core.Ban{nil}
		if !l.Leased() {
			bans = append(bans, &core.Ban{Strikes: rapid.Int64Range(1, 3).Draw(t, "strikes"), Within: time.Minute,
				For: 7 * time.Second, Max: time.Hour})
		}

		ban := rapid.SampledFrom(bans).Draw(t, "ban")

		var versions []core.Limit // of the limit, which takes come under
		for _, other := range limits {
			if other.Algorithm == l.Algorithm {
				versions = append(versions, other)
			}
		}

		// Takes come until one is refused under the limit itself, so that its decision is one that
		// Foretell may be asked about.
		for range 200 {
			now += rapid.Int64Range(0, 100_000).Draw(t, "later")
			of := l
			if rapid.IntRange(0, 3).Draw(t, "changed") == 0 {
				of = rapid.SampledFrom(versions).Draw(t, "version")
			}

			refused = core.Op{Limit: of, Cost: rapid.Int64Range(1, of.Capacity()).Draw(t, "cost"), Lease: "lease",
				Ban: ban}
			if d = decide(s, now, refused); !d.Allowed && of == l && rapid.Bool().Draw(t, "enough") {
				break
			}
		}

		if refused.Limit != l {
			return
		}
		if d.Allowed {
			return // a lease that is renewed
		}

		// A later Take, of another cost perhaps, is foretold from the refusal alone. It may come a
		// microsecond too early or too late, which Foretell has to leave open.
		op := core.Op{Limit: l, Cost: rapid.Int64Range(0, l.Capacity()+1).Draw(t, "other cost"), Lease: "lease",
			Ban: rapid.SampledFrom(bans).Draw(t, "other ban")}
		since := rapid.Int64Range(-1, d.RetryAfter.Microseconds()+1).Draw(t, "since")
		answer := core.Decision{Origin: 7, Wait: 7} // of an earlier step

		if !op.Foretell(refused.Cost, &d, since, &answer) {
			return
		}

		// Whatever it does answer is what the state would have said, and all fields are
		// overwritten.
		if want := decide(clone(s), now+since, op); answer != want {
			t.Fatalf("%s: %d µs after %+v refused %d units, a Take of %d is foretold\n%+v, want\n%+v",
				l, since, d, refused.Cost, op.Cost, answer, want)
		}
	})
}

// strikes returns a Ban of ten seconds that begins with the n-th strike.
func strikes(n int64) *core.Ban {
	return &core.Ban{Strikes: n, Within: time.Minute, For: 10 * time.Second, Max: time.Hour}
}

func TestOpForetellAnswers(t *testing.T) {
	for name, row := range map[string]struct {
		limit   string
		refused int64
		op      core.Op
		since   int64
		want    bool
	}{
		// One unit is foretold; two are not where some of them may come back before the others.
		"gcra":                 {"5/5s", 1, core.Op{Cost: 1}, 1, true},
		"gcra, two units":      {"5/5s", 2, core.Op{Cost: 2}, 1, false},
		"another cost":         {"5/5s", 1, core.Op{Cost: 2}, 1, false},
		"the last microsecond": {"5/5s", 1, core.Op{Cost: 1}, 999_999, true},
		"after the refusal":    {"5/5s", 1, core.Op{Cost: 1}, 1_000_000, false},
		"before the refusal":   {"5/5s", 1, core.Op{Cost: 1}, -1, false},
		"gcra with a fraction": {"7/5s", 1, core.Op{Cost: 1}, 1, true},

		// What waits in line is no refusal, unless the algorithm does not book.
		"a booking":                 {"5/5s", 1, core.Op{Cost: 1, MaxWait: 1}, 1, false},
		"no booking":                {"5/5s fixed-window", 1, core.Op{Cost: 1, MaxWait: 1}, 1, true},
		"fixed-window":              {"5/5s fixed-window", 2, core.Op{Cost: 5}, 1, true},
		"sliding-log":               {"5/5s sliding-log", 1, core.Op{Cost: 1}, 1, true},
		"sliding-log, two units":    {"5/5s sliding-log", 2, core.Op{Cost: 2}, 1, false},
		"sliding-window":            {"5/5s sliding-window", 1, core.Op{Cost: 1}, 1, true},
		"sliding-window, after two": {"5/5s sliding-window", 2, core.Op{Cost: 1}, 1, false},
		"token-bucket":              {"5/5s token-bucket", 1, core.Op{Cost: 1}, 1, true},
		"token-bucket, two units":   {"5/5s token-bucket", 2, core.Op{Cost: 2}, 1, false},

		// What Foretell must leave to the store: a lease may be renewed, and the rest have no
		// refusal that ends.
		"concurrent":                  {"5 concurrent ttl=5s", 1, core.Op{Cost: 1, Lease: "new"}, 1, false},
		"a peek":                      {"5/5s", 1, core.Op{Verb: core.Peek, Cost: 1}, 1, false},
		"no cost":                     {"5/5s", 1, core.Op{}, 1, false},
		"a cost beyond the capacity":  {"5/5s", 1, core.Op{Cost: 6}, 1, false},
		"a refusal that has no end":   {"5/5s", 6, core.Op{Cost: 1}, 1, false},
		"a refusal that was not made": {"5/5s", 0, core.Op{Cost: 1}, 1, false},

		// A strike changes the conduct. In a ban, which here lasts ten seconds, nothing changes,
		// whatever the cost.
		"a strike":                     {"5/5s", 1, core.Op{Cost: 1, Ban: strikes(2)}, 1, false},
		"banned":                       {"5/5s", 1, core.Op{Cost: 1, Ban: strikes(1)}, 1, true},
		"banned, any cost":             {"5/5s", 1, core.Op{Cost: 4, Ban: strikes(1)}, 1, true},
		"banned, the last microsecond": {"5/5s", 1, core.Op{Cost: 1, Ban: strikes(1)}, 9_999_999, true},
		"banned, a cost beyond":        {"5/5s", 1, core.Op{Cost: 6, Ban: strikes(1)}, 1, false},
		"after the ban":                {"5/5s", 1, core.Op{Cost: 1, Ban: strikes(1)}, 10_000_000, false},
		"a ban shorter than the limit": {"5/5h fixed-window", 1, core.Op{Cost: 1, Ban: strikes(1)}, 1, false},
	} {
		// The key is used up, and the Take of another caller is refused: that is the decision to
		// foretell from.
		l := mustParse(t, row.limit)
		s := new(core.State)
		decide(s, start, core.Op{Limit: l, Cost: l.Capacity(), Lease: "lease"})
		d := decide(s, start, core.Op{Limit: l, Cost: row.refused, Lease: "another", Ban: row.op.Ban})

		row.op.Limit = l
		answer := core.Decision{At: 7}
		ok := row.op.Foretell(row.refused, &d, row.since, &answer)

		// Left open means that the answer is not touched.
		if ok != row.want || !ok && answer != (core.Decision{At: 7}) {
			t.Errorf("%s: foretold %v, want %v, and %+v", name, ok, row.want, answer)
		}
	}
}

func TestOpForetellLeavesUnitsOfAnotherRateToTheStore(t *testing.T) {
	s, lowered := new(core.State), mustParse(t, "3/3s burst=6")
	decide(s, start, core.Op{Limit: mustParse(t, "6/3s"), Cost: 6})
	op := core.Op{Limit: lowered, Cost: 3}
	d := decide(s, start, op)
	if d.Allowed || d.RetryAfter != 1500*time.Millisecond {
		t.Fatalf("three of the units of 6/3s are back as %+v says", d)
	}
	var answer core.Decision
	if op.Foretell(3, &d, 0, &answer) {
		t.Errorf("foretold as %+v", answer)
	}
}
