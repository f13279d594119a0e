package core

import (
	"strings"
	"testing"
	"time"
)

const (
	banSecond = int64(1_000_000)
	banStart  = 1_800_000_000 * banSecond
)

// strikeOut strikes until a ban begins, and returns how long it is.
func (c *conduct) strikeOut(t *testing.T, b *Ban, now int64) int64 {
	t.Helper()
	c.settle(b, now)
	for n := int64(1); n <= b.Strikes; n++ {
		if left := c.delay(now); left != 0 {
			t.Fatalf("banned for %d before strike %d", left, n)
		}
		c.strike(b, now)
	}
	return c.delay(now)
}

func TestBanBeginsWithTheLastStrike(t *testing.T) {
	b := Ban{3, time.Minute, 10 * time.Minute, time.Hour}
	for _, row := range []struct {
		name  string
		third int64 // when it comes
		want  int64 // how long the ban is
	}{
		// With three strikes of a minute each, the instant of the third alone decides.
		{"at once", 0, 600 * banSecond},
		{"a microsecond before the first is forgotten", 60*banSecond - 1, 600 * banSecond},
		{"as the first is forgotten", 60 * banSecond, 0},
	} {
		c := conduct{}
		for _, at := range []int64{0, 0, row.third} {
			c.settle(&b, banStart+at)
			c.strike(&b, banStart+at)
		}

		// Six hundred seconds are the ten minutes of For.
		if got := c.delay(banStart + row.third); got != row.want {
			t.Errorf("%s: banned for %d, want %d", row.name, got, row.want)
		}
	}
}

// A field that None overlooks, and that may be all that is kept, is one that stores lose.
func TestConductIsNone(t *testing.T) {
	for _, r := range []struct {
		what    string
		conduct conduct
		none    bool
	}{
		// Until and Span are zero by turns, as a store may find them.
		{"nothing", conduct{}, true},
		{"strikes", conduct{Strikes: 1, Until: banStart}, false},
		{"a ban", conduct{Until: banStart, Span: 1, Forget: banStart + 1}, false},
		{"a ban that has ended", conduct{Span: 1, Forget: banStart}, false},
	} {
		if got := r.conduct.None(); got != r.none {
			t.Errorf("%s: None is %v", r.what, got)
		}
	}
}

// Each ban is twice as long as the one before, until Max, and all are forgotten after Max
// without one.
func TestBanDoubles(t *testing.T) {
	b := Ban{2, time.Minute, 10 * time.Minute, time.Hour}
	c, now := conduct{}, banStart

	// After the longest ban of an hour no doubling is left, hence 60 three times.
	for _, minutes := range []int64{10, 20, 40, 60, 60, 60} {
		span := c.strikeOut(t, &b, now)
		if span != minutes*60*banSecond {
			t.Errorf("banned for %d, want %d minutes", span, minutes)
		}
		if got := c.reset(now); got != span+3600*banSecond {
			t.Errorf("forgotten after %d", got)
		}
		now += span
	}

	// Two copies at either side of the instant at which the history ends: a microsecond before it,
	// the next ban is the longest again; at it, the first.
	almost, whole := c, c
	if got := almost.strikeOut(t, &b, now+3600*banSecond-1); got != 3600*banSecond {
		t.Errorf("a microsecond before it is forgotten the ban is %d", got)
	}
	if got := whole.strikeOut(t, &b, now+3600*banSecond); got != 600*banSecond {
		t.Errorf("when it is forgotten the ban is %d", got)
	}

	// What settles to the zero value is what stores may delete.
	c.settle(&b, now+3600*banSecond)
	if c != (conduct{}) || c.reset(now) != 0 {
		t.Errorf("%+v is left", c)
	}
}

// A ban whose first is the longest gets no longer.
func TestBanOfOneLength(t *testing.T) {
	b := Ban{1, time.Second, time.Hour, time.Hour}
	c, now := conduct{}, banStart
	for range 3 {
		if span := c.strikeOut(t, &b, now); span != 3600*banSecond || c.Span != span {
			t.Errorf("%+v", c)
		}
		now = c.Until
	}
}

// After a clock has stepped back a ban lasts as long as it was to last, and strikes count
// for Within.
func TestBanAfterAClockStep(t *testing.T) {
	b := Ban{2, time.Minute, 10 * time.Minute, time.Hour}
	c := conduct{}
	c.strikeOut(t, &b, banStart)

	// However far back the clock is (9000 seconds are more than the ban and its memory together),
	// the ban is never longer than it was.
	for _, row := range []struct {
		back    int64
		changed bool
	}{{0, false}, {1, true}, {9000 * banSecond, true}} {
		d, now := c, banStart-row.back
		if changed := d.settle(&b, now); changed != row.changed || d.delay(now) != 600*banSecond ||
			d.reset(now) != 4200*banSecond {
			t.Errorf("%d back: changed %v, banned for %d, forgotten after %d", row.back, changed, d.delay(now),
				d.reset(now))
		}
	}

	// A ban that had ended is not begun again by the step back; its memory of an hour starts anew.
	over := c
	if over.settle(&b, c.Until); over.settle(&b, c.Until-1) != true || over.reset(c.Until-1) != 3600*banSecond {
		t.Errorf("a microsecond before the end of a ban that is over: %+v", over)
	}

	// So does the minute in which a strike counts, and the strike is kept.
	c = conduct{}
	c.strike(&b, banStart)
	if !c.settle(&b, banStart-1) || c.reset(banStart-1) != 60*banSecond || c.Strikes != 1 {
		t.Errorf("%+v", c)
	}
}

// A lower Max holds at once, and a lower number of strikes at the next.
func TestBanThatChanges(t *testing.T) {
	b := Ban{5, time.Minute, 10 * time.Minute, time.Hour}
	c := conduct{}

	// Four of five strikes: under the old ban one more begins it.
	for range 4 {
		c.strike(&b, banStart)
	}

	// Two are enough under the new one, so the next strike does.
	lower := Ban{2, time.Minute, time.Minute, 5 * time.Minute}
	c.settle(&lower, banStart)
	if c.strike(&lower, banStart); c.delay(banStart) != 60*banSecond {
		t.Errorf("banned for %d", c.delay(banStart))
	}

	// A ban that runs is cut to the new Max at once: from ten minutes to five.
	c = conduct{}
	c.strikeOut(t, &b, banStart)
	if !c.settle(&lower, banStart) || c.delay(banStart) != 300*banSecond || c.reset(banStart) != 600*banSecond {
		t.Errorf("banned for %d, forgotten after %d", c.delay(banStart), c.reset(banStart))
	}

	// For above the doubled length wins: the second ban is an hour, not ten minutes.
	now := c.Until
	if span := c.strikeOut(t, &Ban{1, time.Minute, time.Hour, 2 * time.Hour}, now); span != 3600*banSecond {
		t.Errorf("after For was raised the second ban is %d", span)
	}
}

func TestBanMistakes(t *testing.T) {
	good := Ban{20, time.Minute, 10 * time.Minute, 24 * time.Hour}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}

	// Each row breaks one field of a good ban, and the last all of them: every fault is named, not
	// only the first.
	for _, row := range []struct {
		change func(*Ban)
		want   []string
	}{
		{func(b *Ban) { b.Strikes = 0 }, []string{"strikes 0 is not within 1 to 2147483648"}},
		{func(b *Ban) { b.Strikes = maxStrikes + 1 }, []string{"strikes 2147483649 is not"}},
		{func(b *Ban) { b.Within = 0 }, []string{"within 0s is not within 1ms to"}},
		{func(b *Ban) { b.Within = time.Millisecond + 1 },
			[]string{"within 1.000001ms is not a whole number of microseconds"}},
		{func(b *Ban) { b.For = -1 }, []string{"for -1ns is not"}},
		{func(b *Ban) { b.Max = MaxPeriod + time.Microsecond }, []string{"max 9600h0m0.000001s is not"}},
		{func(b *Ban) { b.Max = time.Minute }, []string{"for is above max"}},
		{func(b *Ban) { *b = Ban{} }, []string{"strikes 0", "within 0s", "for 0s", "max 0s"}},
	} {
		b := good
		row.change(&b)
		err := b.Validate()
		for _, want := range row.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", b, err, want)
			}
		}
	}
}

// one decides a step of one op at now.
func one(t *testing.T, s *State, op Op, now int64) Decision {
	t.Helper()
	return several(t, []*State{s}, []Op{op}, now)[0]
}

func several(t *testing.T, states []*State, ops []Op, now int64) []Decision {
	t.Helper()
	out := make([]Decision, len(ops))
	if err := CheckOps(ops, out); err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		s.Changed, s.ConductChanged = false, false
	}
	Decide(ops, states, now, out)
	return out
}

// stepBan is the ban of stepOp.
var stepBan = Ban{2, time.Minute, 10 * time.Minute, time.Hour}

// stepOp is a Take under a ban.
var stepOp = Op{Rule: "r", Limit: MustParseLimit("1/1s fixed-window"), Cost: 1, Ban: &stepBan}

// with returns stepOp after a change.
func with(change func(*Op)) Op {
	op := stepOp
	change(&op)
	return op
}

// banned returns the state of a key that stepOp has banned at banStart.
func banned(t *testing.T) *State {
	t.Helper()
	s := new(State)
	for i, want := range []Decision{
		{Allowed: true, Taken: 1, ResetAfter: time.Second, At: banStart},
		{RetryAfter: time.Second, ResetAfter: time.Second, At: banStart},
		{Banned: true, RetryAfter: 10 * time.Minute, ResetAfter: time.Second, At: banStart},
	} {
		if d := one(t, s, stepOp, banStart); d != want || s.Changed != (i == 0) || s.ConductChanged == (i == 0) {
			t.Fatalf("time %d: %+v, %+v, want %+v", i+1, d, s, want)
		}
	}
	return s
}

func TestBanInAStep(t *testing.T) {
	later := banStart + 2*banSecond
	for _, row := range []struct {
		name             string
		op               Op
		want             Decision
		changed, conduct bool
	}{
		// What asks for units under the ban is refused until it ends: 598 of its 600 seconds
		// remain, and a Peek says so without changing a thing.
		{"a Take", stepOp, Decision{Banned: true, RetryAfter: 598 * time.Second}, false, false},
		{"a Take that may book", with(func(o *Op) { o.MaxWait = time.Hour }),
			Decision{Banned: true, RetryAfter: 598 * time.Second}, false, false},
		{"an UpTo Take", with(func(o *Op) { o.UpTo = true }),
			Decision{Banned: true, RetryAfter: 598 * time.Second}, false, false},
		{"a Take of what never fits", with(func(o *Op) { o.Cost = 2 }),
			Decision{Banned: true, RetryAfter: Never}, false, false},
		{"a Peek", with(func(o *Op) { o.Verb = Peek }),
			Decision{Banned: true, RetryAfter: 598 * time.Second}, false, false},
		{"a Peek of nothing", with(func(o *Op) { o.Verb, o.Cost = Peek, 0 }),
			Decision{Allowed: true, Banned: true}, false, false},

		// What was used is settled even so, and the ban stays.
		{"a Debit", with(func(o *Op) { o.Verb = Debit }), Decision{Allowed: true, Banned: true, Taken: 1,
			ResetAfter: time.Second}, true, false},
		{"a Refund", with(func(o *Op) { o.Verb = Refund }), Decision{Allowed: true, Banned: true}, true, false},

		// Soft ops and ops without a Ban look past it.
		{"a Soft Take", with(func(o *Op) { o.Soft = true }),
			Decision{Allowed: true, Taken: 1, ResetAfter: time.Second}, true, false},
		{"a Take without a Ban", with(func(o *Op) { o.Ban = nil }),
			Decision{Allowed: true, Taken: 1, ResetAfter: time.Second}, true, false},

		// Only these two end it.
		{"a Reset", with(func(o *Op) { o.Verb = Reset }), Decision{Allowed: true, Remaining: 1}, true, false},
		{"an Impose", with(func(o *Op) { o.Verb = Impose }), Decision{Allowed: true, Banned: true}, false, true},
		{"a Lift", with(func(o *Op) { o.Verb, o.Ban = Lift, nil }), Decision{Allowed: true, Remaining: 1}, false, true},
	} {
		// The ban began two seconds before, at banStart, when the window of a second was used up.
		t.Run(row.name, func(t *testing.T) {
			s := banned(t)
			row.want.At = later

			if d := one(t, s, row.op, later); d != row.want || s.Changed != row.changed ||
				s.ConductChanged != row.conduct {
				t.Errorf("%+v, changed %v, conduct %v, want %+v", d, s.Changed, s.ConductChanged, row.want)
			}

			// A Peek finds the ban afterwards, unless the op was to end it; then nothing remains to
			// be kept.
			d := one(t, s, with(func(o *Op) { o.Verb = Peek }), later)
			if lifted := row.op.Verb == Reset || row.op.Verb == Lift; d.Banned == lifted ||
				(s.ForgetAfter(&d) == 0) != lifted {
				t.Errorf("then a Peek finds %+v, forgotten after %v", d, s.ForgetAfter(&d))
			}
		})
	}
}

func TestBanIsLifted(t *testing.T) {
	// The ban is gone, and the window of a second that was used up is not.
	t.Run("a Lift keeps the count", func(t *testing.T) {
		s := banned(t)
		want := Decision{Allowed: true, ResetAfter: time.Second, At: banStart}
		if d := one(t, s, with(func(o *Op) { o.Verb = Lift }), banStart); d != want ||
			s.ForgetAfter(&d) != time.Second {
			t.Errorf("%+v, forgotten after %v", d, s.ForgetAfter(&d))
		}
	})

	t.Run("a Lift of nothing changes nothing", func(t *testing.T) {
		s := new(State)
		if one(t, s, with(func(o *Op) { o.Verb = Lift }), banStart); s.Changed || s.ConductChanged {
			t.Error("changed")
		}
	})
}

func TestBanCountsStrikes(t *testing.T) {
	op := stepOp

	// A caller that came back after the ban alone would be refused once more.
	t.Run("Retry-After is that of the limit if it is later", func(t *testing.T) {
		s, day := new(State), with(func(o *Op) { o.Limit = MustParseLimit("1/24h fixed-window") })
		for range 2 {
			one(t, s, day, banStart)
		}

		want := Decision{Banned: true, RetryAfter: 24 * time.Hour, ResetAfter: 24 * time.Hour, At: banStart}
		if d := one(t, s, day, banStart); d != want {
			t.Errorf("%+v", d)
		}
	})

	t.Run("only the rules that refuse strike", func(t *testing.T) {
		full, other := banned(t), new(State)
		full.Conduct = conduct{}

		// The op of the other rule is in the same step, which is refused; that alone is no offence.
		second := with(func(o *Op) { o.Rule = "other" })
		out := several(t, []*State{full, other}, []Op{op, second}, banStart)
		if out[0].Allowed || full.Conduct.Strikes != 1 || !out[1].Allowed || other.Conduct != (conduct{}) {
			t.Errorf("%+v, %+v", full.Conduct, other.Conduct)
		}
	})

	t.Run("a ban holds for all ops of its step", func(t *testing.T) {
		s := new(State)
		one(t, s, op, banStart)
		one(t, s, op, banStart)

		// Both ops are of one key. A quota of two would let the first through, had the second not
		// been banned by the same strike.
		two := with(func(o *Op) { o.Limit.Quota = 2 })
		out := several(t, []*State{s, s}, []Op{two, two}, banStart)
		if out[0].Allowed || out[0].RetryAfter != 10*time.Minute || !out[1].Banned || s.Conduct.Strikes != 0 {
			t.Errorf("%+v", out)
		}
	})

	// Else a client with one impossible request would ban itself by repeating it.
	t.Run("a cost that never fits is no strike", func(t *testing.T) {
		s := new(State)
		if one(t, s, with(func(o *Op) { o.Cost = 2 }), banStart); s.Changed || s.ConductChanged {
			t.Errorf("%+v", s.Conduct)
		}
	})
}

func TestBanMistakesOfOps(t *testing.T) {
	ban := Ban{2, time.Minute, 10 * time.Minute, time.Hour}
	same, other := ban, ban
	other.Max = 2 * time.Hour
	l := MustParseLimit("1/1s")

	// One key has one conduct, so two bans that differ cannot both hold for it; equal ones behind
	// different pointers can.
	for _, row := range []struct {
		ops  []Op
		want string
	}{
		{[]Op{{Limit: l, Ban: &ban}, {Limit: l, Ban: &same}, {Limit: l}}, ""},
		{[]Op{{Limit: l, Ban: &ban}, {Rule: "r", Limit: l, Ban: &other}}, ""},
		{[]Op{{Limit: l, Ban: &ban}, {Limit: l, Ban: &other}}, "operation 0 has another ban for the same key"},
		{[]Op{{Limit: l, Ban: &Ban{}}}, "the ban is not valid: strikes 0 is not within 1 to 2147483648, within 0s"},
		{[]Op{{Limit: MustParseLimit("1 concurrent ttl=1s"), Lease: "l", Ban: &ban}}, "a leased limit has no ban"},
		{[]Op{{Verb: Lift, Limit: l}}, ""},
		{[]Op{{Verb: Impose, Limit: l}}, "a ban is missing"},
		{[]Op{{Verb: Revoke + 1, Limit: l}}, "the verb is not known"},
	} {
		err := CheckOps(row.ops, make([]Decision, len(row.ops)))
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
}
