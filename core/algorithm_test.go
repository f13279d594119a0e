package core_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

func TestAlgorithmNamesAndLettersAreUnique(t *testing.T) {
	names, letters := map[string]bool{}, map[string]bool{}
	for a := range core.Concurrency + 1 {
		name, letter := a.String(), a.Letter()
		if names[name] || letters[letter] || len(letter) != 1 {
			t.Errorf("algorithm %d is %q with the letter %q", a, name, letter)
		}
		names[name], letters[letter] = true, true
		var got core.Algorithm
		if ok := got.Parse(name); got != a || !ok {
			t.Errorf("%q is read as algorithm %d, %v", name, got, ok)
		}
	}
}

func TestAlgorithmUnknownHasNoTraits(t *testing.T) {
	l := core.Limit{Algorithm: core.CalendarWindow + 1, Quota: 4, Period: 1e9}
	if s, letter := l.Algorithm.String(), l.Algorithm.Letter(); s != "algorithm(7)" || letter != "" {
		t.Errorf("%q with the letter %q", s, letter)
	}
	a := core.SlidingLog
	if ok := a.Parse("algorithm(7)"); a != core.SlidingLog || ok {
		t.Errorf("algorithm %d, %v", a, ok)
	}
	if l.Leased() || l.Books() || l.Prefetchable() || l.Part(2) != l {
		t.Errorf("leased %v, books %v, prefetchable %v, a part of %v", l.Leased(), l.Books(), l.Prefetchable(),
			l.Part(2))
	}
}

func TestLimitStillUsedIsNeverMoreThanIsUsed(t *testing.T) {
	limits := refusable(t)
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.SampledFrom(limits).Draw(t, "limit")
		s, now := new(core.State), start
		var d core.Decision

		// The last decision is all that a prefetching layer keeps of what is used.
		for range rapid.IntRange(1, 10).Draw(t, "takes") {
			now += rapid.Int64Range(0, 500_000).Draw(t, "later")
			d = decide(s, now, core.Op{Limit: l, Cost: rapid.Int64Range(1, 3).Draw(t, "cost"),
				Lease: rapid.StringMatching("[a-d]").Draw(t, "lease")})
		}

		// It reckons later from that decision alone, a microsecond past the reset included, and
		// must never say more than the state itself: units that have come back would stay blocked.
		used := l.Capacity() - d.Remaining
		since := rapid.Int64Range(0, d.ResetAfter.Microseconds()+1).Draw(t, "since")
		later := decide(clone(s), now+since, core.Op{Verb: core.Peek, Limit: l})
		least := min(used, l.StillUsed(used, d.ResetAfter.Microseconds()-since))
		if least > l.Capacity()-later.Remaining || least > 0 && !l.Prefetchable() {
			t.Fatalf("%s: %d of %d units are still used %d µs later, but %d remain", l, least, used, since,
				later.Remaining)
		}
	})
}
