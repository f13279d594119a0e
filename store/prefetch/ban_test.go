package prefetch_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/prefetch"
	"github.com/headgate/headgate/store/storetest"
)

func takeUnderBan(l core.Limit, strikes int64) core.Op {
	op := take(l, 1)
	op.Ban = &core.Ban{Strikes: strikes, Within: time.Minute, For: 2 * time.Hour, Max: 8 * time.Hour}
	return op
}

// A refused request is one strike, however many units were taken ahead, and a banned key
// has none held.
func TestBanCountsARefusalOnce(t *testing.T) {
	w := newWorld(t)
	s, op := w.instance(64), takeUnderBan(limit(t, "100/1h fixed-window"), 3)

	// The limit is used up, by units taken ahead in the main, and each answer is that of the store.
	for n := 1; n <= 100; n++ {
		if d := w.apply(s, op)[0]; !d.Allowed || d.Remaining != int64(100-n) {
			t.Fatalf("take %d: %+v", n, d)
		}
	}

	// The third refusal begins the ban, as it would without prefetching.
	for n, banned := range []bool{false, false, true, true} {
		if d := w.apply(s, op)[0]; d.Allowed || d.Banned != banned {
			t.Errorf("refusal %d: %+v", n+1, d)
		}
	}

	// The ban of two hours ends at its instant, and with it the window of an hour is over too.
	w.clock.Add(2*time.Hour - time.Microsecond)
	if d := w.apply(s, op)[0]; !d.Banned || d.RetryAfter != time.Microsecond {
		t.Errorf("%+v", d)
	}

	w.clock.Add(time.Microsecond)
	if d := w.apply(s, op)[0]; !d.Allowed || d.Banned || d.Remaining != 99 {
		t.Errorf("after the ban: %+v", d)
	}
}

// What an instance holds of a key that another bans is handed out, and no more than that.
func TestBanByAnotherInstanceIsSeenWhenTheHeldUnitsAreUsedUp(t *testing.T) {
	w := newWorld(t)
	one, two, op := w.instance(4), w.instance(4), takeUnderBan(limit(t, "1000/1h fixed-window"), 1)

	// After twenty Takes the instance takes ahead.
	for range 20 {
		w.apply(one, op)
	}

	peek, impose := op, op
	peek.Verb, peek.Cost, impose.Verb = core.Peek, 1, core.Impose
	w.apply(two, impose)

	// It has not asked the store since, and hands out at most the four units that it may hold.
	admitted := 0
	for w.apply(one, op)[0].Allowed {
		admitted++
	}

	if admitted == 0 || admitted > 4 {
		t.Errorf("%d admitted of 4 units that may be held", admitted)
	}

	// Then it asks, and hears of the ban.
	if d := w.apply(one, op)[0]; !d.Banned || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
}

// A peek that finds a ban drops what is held.
func TestBanThatAPeekFindsHoldsAtOnce(t *testing.T) {
	w := newWorld(t)
	one, two, op := w.instance(4), w.instance(4), takeUnderBan(limit(t, "1000/1h fixed-window"), 1)

	for range 20 {
		w.apply(one, op)
	}

	peek, impose := op, op
	peek.Verb, impose.Verb = core.Peek, core.Impose
	w.apply(two, impose)

	// A Peek goes to the store, and what it finds there holds for the units here.
	if d := w.apply(one, peek)[0]; d.Allowed || !d.Banned || d.RetryAfter != 2*time.Hour {
		t.Errorf("%+v", d)
	}

	if d := w.apply(one, op)[0]; d.Allowed || !d.Banned {
		t.Errorf("a take after it: %+v", d)
	}
}

// Units that were taken without a Ban are not handed out under one.
func TestBanIsNotAvoidedByUnitsTakenWithoutOne(t *testing.T) {
	w := newWorld(t)
	s, op := w.instance(4), takeUnderBan(limit(t, "1000/1h fixed-window"), 1)

	impose, free := op, op
	impose.Verb, free.Ban = core.Impose, nil
	w.apply(s, impose)

	// The op without a Ban is not refused by the ban and fills the hold.
	for range 20 {
		if !w.apply(s, free)[0].Allowed {
			t.Fatal("refused without a ban")
		}
	}

	// The same key under the Ban must not get any of these.
	if d := w.apply(s, op)[0]; !d.Banned {
		t.Errorf("%+v", d)
	}
}

// banning gives all Takes a Ban that never begins.
type banning struct{ core.Store }

var never = &core.Ban{Strikes: 1 << 31, Within: time.Hour, For: time.Hour, Max: time.Hour}

func (b banning) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	for i := range ops {
		if !ops[i].Limit.Leased() {
			ops[i].Ban = never
		}
	}
	return b.Store.Apply(ctx, ops, out)
}

// Under a Ban too a request waits for units that are on their way.
func TestConcurrentTakersGetExactlyTheQuotaUnderABan(t *testing.T) {
	for range 20 {
		storetest.Contention(t, func(t testing.TB, clock *storetest.Clock) core.Store {
			s, err := prefetch.New(memstore.MustNew(memstore.Options{Clock: clock.Now}),
				prefetch.Options{Clock: clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			return banning{s}
		})
	}
}
