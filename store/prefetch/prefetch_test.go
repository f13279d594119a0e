package prefetch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/prefetch"
	"github.com/headgate/headgate/store/storetest"
)

// counting counts the calls of a store, and fails if the test says so.
type counting struct {
	core.Store
	calls atomic.Int64
	down  atomic.Bool
}

var errDown = errors.New("down")

func (c *counting) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	c.calls.Add(1)
	if c.down.Load() {
		return errDown
	}
	return c.Store.Apply(ctx, ops, out)
}

func limit(t testing.TB, text string) core.Limit {
	t.Helper()
	l, err := core.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// world is a store from which several instances take units ahead.
type world struct {
	testing.TB
	clock *storetest.Clock
	inner *counting
}

func newWorld(t testing.TB) *world {
	clock := storetest.NewClock()
	return &world{t, clock, &counting{Store: memstore.MustNew(memstore.Options{Clock: clock.Now})}}
}

func (w *world) instance(units int64) *prefetch.Store {
	w.Helper()
	s, err := prefetch.New(w.inner, prefetch.Options{Units: units, Clock: w.clock.Now})
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func (w *world) apply(s core.Store, ops ...core.Op) []core.Decision {
	w.Helper()
	out := make([]core.Decision, len(ops))
	for i := range ops {
		ops[i].Windows = ops[i].Limit.Windows(w.clock.Now())
	}
	if err := s.Apply(context.Background(), ops, out); err != nil {
		w.Fatal(err)
	}
	return out
}

func take(l core.Limit, cost int64) core.Op {
	return core.Op{Rule: "rule", Key: "key", Limit: l, Cost: cost}
}

// spend takes single units until one is refused, and returns how many it got.
func (w *world) spend(s core.Store, l core.Limit) (n int64) {
	w.Helper()
	for w.apply(s, take(l, 1))[0].Allowed {
		n++
	}
	return n
}

func TestBusyKeyNeedsFewCalls(t *testing.T) {
	for _, text := range []string{"1000000/1h", "1000000/1h token-bucket", "1000000/1h fixed-window",
		"1000000/1h fixed-window aligned", "1000000/day"} {
		w := newWorld(t)
		s, l := w.instance(64), limit(t, text)

		// Seven Takes by themselves; then one that goes to the store and 1, 2, 4 and so on from
		// what it took ahead.
		for range 7 + 1 + 1 + 1 + 2 + 1 + 4 + 1 + 8 + 1 + 16 + 1 + 32 + 1 + 64 {
			if !w.apply(s, take(l, 1))[0].Allowed {
				t.Fatalf("%s: refused", text)
			}
		}

		// Seven Takes are not busy, and each of the seven after them that goes
		// to the store takes twice as much ahead as the one before, up to 64.
		if n := w.inner.calls.Load(); n != 7+7 || s.Held() != 0 {
			t.Errorf("%s: %d calls and %d units held, want 14 and 0", text, n, s.Held())
		}
	}
}

func TestQuietKeysAreNotTakenAhead(t *testing.T) {
	for _, row := range []struct {
		limit string
		pause time.Duration
		op    core.Op
	}{
		// Fewer than eight in 100 ms: not busy.
		{"1000000/1h", 15 * time.Millisecond, core.Op{Cost: 1}},

		// Algorithms whose units come back one by one, or belong to a lease.
		{"1000/1h sliding-log", 0, core.Op{Cost: 1}},
		{"1000000/1h sliding-window", 0, core.Op{Cost: 1}},
		{"1000 concurrent ttl=1h", 0, core.Op{Cost: 1, Lease: "lease"}},

		// Ops that may wait, cost nothing or take nothing.
		{"1000000/1h", 0, core.Op{Cost: 1, MaxWait: time.Second}},
		{"1000000/1h", 0, core.Op{}},
		{"1000000/1h", 0, core.Op{Verb: core.Peek, Cost: 1}},
	} {
		w := newWorld(t)
		s := w.instance(64)
		row.op.Limit = limit(t, row.limit)

		for range 100 {
			w.apply(s, row.op)
			w.clock.Add(row.pause)
		}

		// Each is one call to the store, as without prefetching.
		if n := w.inner.calls.Load(); n != 100 || s.Held() != 0 {
			t.Errorf("%s %+v: %d calls and %d units held, want 100 and 0", row.limit, row.op, n, s.Held())
		}
	}
}

func TestInstancesTogetherAdmitExactlyTheLimit(t *testing.T) {
	for _, text := range []string{"1000/1h", "1000/1h token-bucket", "1000/1h fixed-window", "1000/day"} {
		w := newWorld(t)
		l := limit(t, text)
		a, b, c := w.instance(64), w.instance(16), w.instance(1)

		// Three instances that hold up to 64, 16 and 1 units.
		var n int64

		for range 100 {
			for _, s := range []*prefetch.Store{a, b, c} {
				if w.apply(s, take(l, 1))[0].Allowed {
					n++
				}
			}
		}

		// What lies with one cannot be had by another, but is not lost: spent where it lies, it
		// makes up the limit.
		lying := a.Held() + b.Held() + c.Held()
		for _, s := range []*prefetch.Store{b, a, c} {
			n += w.spend(s, l)
		}

		if lying == 0 || n != 1000 {
			t.Errorf("%s: %d units admitted, and %d held in between", text, n, lying)
		}
	}
}

func TestRemainingOfOneInstanceIsExact(t *testing.T) {
	w := newWorld(t)
	s, l := w.instance(64), limit(t, "500/1h")

	// The store knows of all units that were taken ahead; those that are held are added back.
	for left := int64(499); left >= 0; left-- {
		if d := w.apply(s, take(l, 1))[0]; !d.Allowed || d.Remaining != left {
			t.Fatalf("%+v, want %d to remain", d, left)
		}

		// A Peek must say the same.
		if d := w.apply(s, core.Op{Verb: core.Peek, Rule: "rule", Key: "key", Limit: l,
			Cost: 1})[0]; d.Remaining != left || d.Allowed != (left > 0) {
			t.Fatalf("peek: %+v, want %d to remain", d, left)
		}
	}

	// The limit is used up: the next unit comes after 3600 s / 500.
	if d := w.apply(s, take(l, 1))[0]; d.Allowed || d.RetryAfter != 7200*time.Millisecond {
		t.Errorf("%+v, want a refusal for 7.2 s", d)
	}
}

// makeBusy makes the key busy and returns how many units are held then.
func (w *world) makeBusy(s *prefetch.Store, l core.Limit) int64 {
	w.Helper()
	for range 200 {
		w.apply(s, take(l, 1))
	}
	if s.Held() == 0 {
		w.Fatalf("%s: nothing is held", l)
	}
	return s.Held()
}

func TestHeldUnitsAreDroppedWhenTheyHaveComeBack(t *testing.T) {
	for _, row := range []struct {
		limit string
		after time.Duration // since the last call
		want  func(held int64) int64
	}{
		// A unit that is still held after it has come back in the store could be taken twice.
		// 500 a second: the key is fresh 2 ms after each unit.
		{"1000/2s", 0, func(held int64) int64 { return held }},
		{"1000/1h fixed-window", time.Hour - time.Microsecond, func(held int64) int64 { return held }},
		{"1000/1h fixed-window", time.Hour, func(int64) int64 { return 0 }},
		{"1000/day", 24*time.Hour - time.Microsecond, func(held int64) int64 { return held }},

		// from midnight, at which the clock starts
		{"1000/day", 24 * time.Hour, func(int64) int64 { return 0 }},
		{"500/1s token-bucket burst=1000", time.Second - time.Microsecond, func(held int64) int64 { return held }},
		{"500/1s token-bucket burst=1000", time.Second, func(int64) int64 { return 0 }},
		{"203/1s token-bucket burst=1000", time.Second, func(held int64) int64 { return held - 3 }},
	} {
		w := newWorld(t)
		s := w.instance(64)

		// The hold is full; time passes without another call.
		held := w.makeBusy(s, limit(t, row.limit))
		w.clock.Add(row.after)

		if got := s.Held(); got != row.want(held) {
			t.Errorf("%s: of %d units %d are held after %v, want %d", row.limit, held, got, row.after, row.want(held))
		}
	}
}

func TestHeldUnitsOfGCRAAreDroppedLastOnesLast(t *testing.T) {
	w := newWorld(t)
	l := limit(t, "1000/2s")
	s := w.instance(64)
	held := w.makeBusy(s, l)

	// The store's own word says when the key is fresh, from which the units are counted back.
	d := w.apply(w.inner, core.Op{Verb: core.Peek, Rule: "rule", Key: "key", Limit: l})[0]

	// Each unit is dropped as it comes back, one in 2 ms, and the last just before the key is
	// fresh.
	for left := d.ResetAfter; left > 0; left -= time.Millisecond {
		want := min(held, int64((left-time.Microsecond)/(2*time.Millisecond)))
		if got := s.Held(); got != want {
			t.Fatalf("%d units are held %v before the key is fresh, want %d", got, left, want)
		}
		w.clock.Add(time.Millisecond)
	}

	if got := s.Held(); got != 0 {
		t.Errorf("%d units are held of a fresh key", got)
	}
}

func TestCloseGivesHeldUnitsBack(t *testing.T) {
	for _, text := range []string{"1000/1h", "1000/1h token-bucket", "1000/1h fixed-window", "1000/day"} {
		w := newWorld(t)
		s, l := w.instance(64), limit(t, text)
		w.makeBusy(s, l)

		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}

		// makeBusy has used 200 of the 1000, and what was held is among those that can be spent in
		// the store.
		if n := w.spend(w.inner, l); n != 800 || s.Held() != 0 {
			t.Errorf("%s: %d units left and %d held after 200 of 1000, want 800 and 0", text, n, s.Held())
		}

		// A closed instance still answers, but takes nothing ahead any more.
		before := w.inner.calls.Load()
		for range 50 {
			w.apply(s, take(l, 1))
		}

		if n := w.inner.calls.Load() - before; n != 50 {
			t.Errorf("%s: %d calls after Close, want 50", text, n)
		}
	}
}

func TestHeldUnitsGoBackForALargerCost(t *testing.T) {
	w := newWorld(t)
	s, l := w.instance(64), limit(t, "1000/1h")
	w.makeBusy(s, l)
	if d := w.apply(s, take(l, 700))[0]; !d.Allowed || d.Remaining != 100 {
		t.Fatalf("%+v, want 100 to remain", d)
	}
	if n := w.spend(s, l); n != 100 {
		t.Errorf("%d units left, want 100", n)
	}
}

// An UpTo Take gets the held units too: from here if they are enough, or by way of the
// store.
func TestUpToTakeGetsHeldAndRemainingUnits(t *testing.T) {
	for _, text := range []string{"1000/1h", "1000/1h fixed-window", "1000/day"} {
		w := newWorld(t)
		s, l := w.instance(100), limit(t, text)
		w.makeBusy(s, l)

		// The 200 of makeBusy are used; whatever is held is not.
		used := int64(200)
		op := take(l, 1)
		op.UpTo = true

		// One from here, then more than is held, then all, and then nothing is left.
		for _, cost := range []int64{1, 300, 1000, 1000} {
			op.Cost = cost
			want := min(cost, 1000-used)
			d := w.apply(s, op)[0]
			if d.Taken != want || d.Allowed != (want > 0) {
				t.Errorf("%s: %+v, want %d of %d", text, d, want, cost)
			}
			used += want
		}

		// A Reset drops what is held too: the fresh key has all of its units in the store.
		w.apply(s, core.Op{Verb: core.Reset, Rule: "rule", Key: "key", Limit: l})
		op.Cost = 2000
		if d := w.apply(s, op)[0]; d.Taken != 1000 {
			t.Errorf("%s: %+v of a fresh key, want 1000", text, d)
		}
	}
}

func TestStepOfSeveralRulesUsesHeldUnits(t *testing.T) {
	w := newWorld(t)
	s := w.instance(64)

	// The narrow rule refuses in the end, and must not cost the wide one anything.
	a, b := take(limit(t, "100000/1h"), 1), take(limit(t, "90/1h"), 1)
	b.Rule = "narrow"

	admitted := 0
	for range 200 {
		out := w.apply(s, a, b)
		if out[0].Allowed && out[1].Allowed {
			admitted++
		}
	}

	// A step is served from here when both rules hold enough.
	if calls := w.inner.calls.Load(); admitted != 90 || calls >= 200 {
		t.Fatalf("%d admitted by %d calls, want 90 by fewer than 200", admitted, calls)
	}

	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}

	// The store has charged both alike.
	for _, op := range []core.Op{a, b} {
		op.Verb = core.Peek
		if d := w.apply(w.inner, op)[0]; d.Remaining != op.Limit.Quota-90 {
			t.Errorf("%s: %d remain, want %d", op.Rule, d.Remaining, op.Limit.Quota-90)
		}
	}
}

func TestResetDropsHeldUnits(t *testing.T) {
	w := newWorld(t)
	s, l := w.instance(64), limit(t, "1000/1h")
	w.makeBusy(s, l)
	w.apply(s, core.Op{Verb: core.Reset, Rule: "rule", Key: "key", Limit: l})
	if n := s.Held(); n != 0 {
		t.Errorf("%d units held", n)
	}
	if n := w.spend(s, l); n != 1000 {
		t.Errorf("%d units, want 1000", n)
	}
}

// A debit charges held units first, and what is held never goes beyond the debt.
func TestDebitUsesHeldUnits(t *testing.T) {
	for _, text := range []string{"1000/1h debt=50", "1000/1h token-bucket debt=50", "1000/1h fixed-window debt=50",
		"1000/day debt=50"} {
		// Less than is held, exactly that, one more, and more than the debt allows.
		for _, more := range []int64{-1, 0, 1, 2000} {
			w := newWorld(t)
			s, l := w.instance(64), limit(t, text)
			held := w.makeBusy(s, l)
			debit := take(l, held+more)
			debit.Verb = core.Debit

			// Of the 800 units that are left and the debt of 50, no more than 850 can be charged.
			d := w.apply(s, debit)[0]
			taken := min(debit.Cost, 850)
			if !d.Allowed || d.Taken != taken || d.Remaining != max(0, 800-taken) || s.Held() != max(0, -more) {
				t.Errorf("%s: a debit of %d with %d held: %+v, and %d are held", text, debit.Cost, held, d, s.Held())
			}

			// The refund brings back exactly what was charged.
			w.apply(s, debit.Refund(d))
			if n := w.spend(s, l); n != 800 {
				t.Errorf("%s: %d units after the refund of %d, want 800", text, n, debit.Cost)
			}
		}
	}
}

// One step peeks at a key and debits it and another, of which the instance holds nothing.
func TestDebitAmongOthersUsesHeldUnits(t *testing.T) {
	w := newWorld(t)
	s, l := w.instance(64), limit(t, "1000/1h")
	held := w.makeBusy(s, l)
	debit, peek := take(l, held+5), take(l, 1)
	debit.Verb, peek.Verb = core.Debit, core.Peek
	other := debit
	other.Key = "other"
	out := w.apply(s, other, debit, peek)
	if out[0].Taken != held+5 || out[1].Taken != held+5 || out[1].Remaining != 795-held ||
		out[2].Remaining != 795-held {
		t.Errorf("with %d held: %+v", held, out)
	}
}

func TestLimitChangeDropsHeldUnits(t *testing.T) {
	w := newWorld(t)
	s := w.instance(64)
	held := w.makeBusy(s, limit(t, "1000/1h"))
	l := limit(t, "300/1h")
	// 200 are used and some are held: those come back by themselves.
	if n := w.spend(s, l); n != 100-held {
		t.Errorf("%d units, want %d", n, 100-held)
	}
}

func TestHeldUnitsOutliveAnOutage(t *testing.T) {
	w := newWorld(t)
	s, l := w.instance(64), limit(t, "1000000/1h")
	held := w.makeBusy(s, l)

	// What is held was paid for before the outage, so it is handed out.
	w.inner.down.Store(true)
	out := make([]core.Decision, 1)

	for range held {
		if err := s.Apply(context.Background(), []core.Op{take(l, 1)}, out); err != nil || !out[0].Allowed {
			t.Fatalf("%+v, %v", out[0], err)
		}
	}

	// Then the store's error is the answer: nothing is invented.
	if err := s.Apply(context.Background(), []core.Op{take(l, 1)}, out); !errors.Is(err, errDown) {
		t.Fatalf("%v, want %v", err, errDown)
	}

	w.inner.down.Store(false)

	// A failed call must not leave the key as one that is being filled.
	w.apply(s, take(l, 1))
	if s.Held() == 0 {
		t.Error("nothing is taken ahead after the store is back")
	}
}

func TestRefundOfAHeldKeyIsExact(t *testing.T) {
	w := newWorld(t)
	s, l := w.instance(64), limit(t, "1000/1h")
	w.makeBusy(s, l)
	d := w.apply(s, take(l, 1))[0]
	w.apply(s, core.Op{Verb: core.Refund, Rule: "rule", Key: "key", Limit: l, Cost: 1, At: d.At,
		ResetAfter: d.ResetAfter})
	if n := w.spend(s, l); n != 800 {
		t.Errorf("%d units left, want 800", n)
	}
}

func TestKeysAreBounded(t *testing.T) {
	w := newWorld(t)
	s, err := prefetch.New(w.inner, prefetch.Options{MaxKeys: 64, Clock: w.clock.Now})
	if err != nil {
		t.Fatal(err)
	}

	// A thousand busy keys would hold 64 units each.
	l := limit(t, "1000000/1h")
	for k := range 1000 {
		op := take(l, 1)
		op.Key = fmt.Sprint(k)
		for range 20 {
			w.apply(s, op)
		}
	}

	if n := s.Held(); n == 0 || n > 64*64 {
		t.Errorf("%d units held", n)
	}
}

func TestHeldUnitsAreHandedOutOnce(t *testing.T) {
	w := newWorld(t)
	l := limit(t, "5000/1h")

	// Sixteen goroutines share two instances of one store.
	stores := []*prefetch.Store{w.instance(64), w.instance(64)}
	var n atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			out := make([]core.Decision, 1)
			ops := []core.Op{take(l, 1)}
			for range 1000 {
				if err := stores[g%2].Apply(context.Background(), ops, out); err != nil {
					t.Error(err)
				}
				if out[0].Allowed {
					n.Add(1)
				}
			}
		})
	}

	wg.Wait()

	// Each unit is handed out once, whether held or not.
	if n.Load() != 5000 {
		t.Errorf("%d of 16000 admitted, want 5000", n.Load())
	}
}

func TestNewNamesEveryMistake(t *testing.T) {
	_, err := prefetch.New(nil, prefetch.Options{Units: -1, MaxKeys: 1 << 30})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"the store is nil", "Units -1 is not within 0 to 1048576",
		"MaxKeys 1073741824 is not within 0 to 16777216"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestInvalidOpOnABusyKeyIsAnError(t *testing.T) {
	w := newWorld(t)
	s := w.instance(64)
	for range 20 {
		err := s.Apply(context.Background(), []core.Op{take(core.Limit{}, 1)}, make([]core.Decision, 1))
		if !errors.Is(err, core.ErrOp) {
			t.Fatalf("%v, want %v", err, core.ErrOp)
		}
	}
	if err := s.Apply(context.Background(), []core.Op{take(limit(t, "1/1s"), -1)},
		make([]core.Decision, 1)); !errors.Is(err, core.ErrOp) {
		t.Errorf("%v, want %v", err, core.ErrOp)
	}
}

// However busy a key is, an instance holds at most Units of it.
func TestAheadIsAtMostTheOption(t *testing.T) {
	w := newWorld(t)
	s, l, most := w.instance(10), limit(t, "1000000/1h"), int64(0)
	for range 1000 {
		w.apply(s, take(l, 1))
		most = max(most, s.Held())
	}
	if most != 10 {
		t.Errorf("%d units were held, want 10", most)
	}
}

func TestAheadIsAtMostAQuarterOfTheRemaining(t *testing.T) {
	w := newWorld(t)
	s, l := w.instance(1<<20), limit(t, "1000/1h")

	// The limit is used up with the largest hold allowed, so that only the quarter bounds it.
	for {
		calls := w.inner.calls.Load()
		if !w.apply(s, take(l, 1))[0].Allowed {
			break
		}

		// What remains in all, here and in the store, just after the Take.
		before := w.apply(w.inner.Store, core.Op{Verb: core.Peek, Rule: "rule", Key: "key",
			Limit: l})[0].Remaining + s.Held()

		// A call that has filled the hold may have taken a quarter, rounded up.
		if w.inner.calls.Load() > calls && s.Held() > before/4+1 {
			t.Fatalf("%d units are held of %d", s.Held(), before)
		}
	}
}

func TestDecisionFromHeldUnitsHasAtAndReset(t *testing.T) {
	w := newWorld(t)
	s, l := w.instance(64), limit(t, "100000/1h")
	w.makeBusy(s, l)
	w.clock.Add(10 * time.Millisecond)
	want := w.apply(w.inner.Store, core.Op{Verb: core.Peek, Rule: "rule", Key: "key", Limit: l})[0]
	calls := w.inner.calls.Load()
	d := w.apply(s, take(l, 1))[0]
	if d.At != want.At || d.ResetAfter != want.ResetAfter || w.inner.calls.Load() != calls {
		t.Errorf("%+v by %d calls, want the instant and the reset of %+v", d, w.inner.calls.Load()-calls, want)
	}
}

// Whatever part of a cost is held and whatever part the store still has, a Peek is
// answered as a Take would be.
func TestPeekAgreesWithTake(t *testing.T) {
	for _, text := range []string{"1000/1h", "1000/1h fixed-window", "1000/day"} {
		t.Run(text, func(t *testing.T) {
			l := limit(t, text)

			// Each question has a world of its own, as a Take changes what the next would find.
			busy := func() (*world, *prefetch.Store) {
				w := newWorld(t)
				s := w.instance(64)
				w.makeBusy(s, l)
				return w, s
			}
			w, s := busy()
			held := s.Held()
			peek := core.Op{Verb: core.Peek, Rule: "rule", Key: "key", Limit: l}

			all := w.apply(s, peek)[0].Remaining
			if held < 2 || all-held < held {
				t.Fatalf("%d of %d units are held, too few to try", held, all)
			}

			// Costs around each border: what is held, what is in the store, and both together.
			for _, peek.Cost = range []int64{0, 1, held - 1, held, held + 1, all - held, all - held + 1, all - 1, all,
				all + 1, 1000, 1001} {
				w, s := busy()
				asked, taken := w.apply(s, peek)[0], w.apply(s, take(l, peek.Cost))[0]
				if asked.Allowed != taken.Allowed || asked.RetryAfter != taken.RetryAfter || asked.Remaining != all {
					t.Errorf("with %d of %d held, a Peek of %d gets %+v and a Take %+v", held, all, peek.Cost, asked,
						taken)
				}
			}
		})
	}
}

func TestPeekUnderAnotherLimitIgnoresHeldUnits(t *testing.T) {
	w := newWorld(t)
	s := w.instance(64)
	w.makeBusy(s, limit(t, "1000/1h"))
	op := core.Op{Verb: core.Peek, Rule: "rule", Key: "key", Limit: limit(t, "900/1h")}
	if got, want := w.apply(s, op)[0], w.apply(w.inner.Store, op)[0]; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestAheadFallsWhenAKeySlowsDown(t *testing.T) {
	w := newWorld(t)
	s, l := w.instance(64), limit(t, "1000000/1h fixed-window")
	w.makeBusy(s, l)

	// Each round uses the hold up and comes back half a second later, with eight Takes.
	for _, want := range []int64{32, 16, 8, 4, 2, 1, 1} {
		for s.Held() > 0 {
			w.apply(s, take(l, 1))
		}

		// A key so slow needs no more than half of what was taken ahead for it the last time.
		w.clock.Add(500 * time.Millisecond)
		for range 8 {
			w.apply(s, take(l, 1))
		}

		if n := s.Held(); n != want {
			t.Fatalf("%d units are held, want %d", n, want)
		}
	}
}

// timed is a store that waits for a server.
type timed struct{ core.Store }

func (timed) Report() events.Report { return events.Report{MaxCall: 7 * time.Second} }

func TestMaxCallIsThatOfTheStore(t *testing.T) {
	memory := memstore.MustNew(memstore.Options{})
	for store, want := range map[core.Store]time.Duration{timed{memory}: 7 * time.Second, memory: 0} {
		s, err := prefetch.New(store, prefetch.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Report().MaxCall; got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// apart is a store of shards.
type apart struct{ core.Store }

func (apart) Shards() func(key string) string { return func(key string) string { return key[:1] } }

func TestShardIsThatOfTheStore(t *testing.T) {
	memory := memstore.MustNew(memstore.Options{})
	for want, store := range map[string]core.Store{"": memory, "k": apart{memory}} {
		s, err := prefetch.New(store, prefetch.Options{})
		if err != nil {
			t.Fatal(err)
		}

		got := ""
		if shardOf := s.Shards(); shardOf != nil {
			got = shardOf("key")
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
