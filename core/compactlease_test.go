package core_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// leasedKey is a key as a store keeps it: two numbers and two pieces of memory, or a state.
type leasedKey struct {
	limit      core.Limit // under which the records were written
	used, mark int64
	head, tail []byte

	rest []core.Lease // of a key that cannot be packed
}

// leases returns the leases of the key.
func (k *leasedKey) leases() []core.Lease {
	c := k.limit.Compact()
	return append(c.UnpackLeases(k.used, k.mark, k.head, k.tail, nil), k.rest...)
}

// keep keeps the leases of a state, in a larger tail if they need one.
func (k *leasedKey) keep(t *testing.T, r *rand.Rand, st *core.State) {
	t.Helper()
	k.limit, k.rest = st.Limit, nil
	c, ok := k.limit.Compact(), false
	if !c.Packs(st.Leases) {
		k.used, k.mark, k.rest = 0, 0, slices.Clone(st.Leases)
		return
	}
	if c.LeaseRoom(k.head, k.tail) < len(st.Leases) || r.IntN(20) == 0 {
		k.head = make([]byte, r.IntN(80))
		k.tail = make([]byte, c.LeaseBytes(len(st.Leases)+r.IntN(3))+r.IntN(20))
	}
	if k.used, k.mark, ok = c.PackLeases(st.Leases, k.head, k.tail); !ok {
		t.Fatalf("%d and %d bytes have no room for %v", len(k.head), len(k.tail), st.Leases)
	}
}

// leaseIDs are ids as limiters make them, which differ in as little as one digit, and others.
var leaseIDs = func() (ids []string) {
	for i := range 12 {
		ids = append(ids, fmt.Sprintf("%032x", i))
		ids = append(ids, strings.Repeat("f", 31-i)+"0"+strings.Repeat("f", i))
	}
	hex := strings.Repeat("0", 32)
	return append(ids, hex, strings.Repeat("a", 32), strings.Repeat("9", 32), hex[1:], hex+"0", "x", "",
		strings.Repeat("A", 32), strings.Repeat("g", 32), strings.Repeat("`", 32), strings.Repeat(":", 32),
		strings.Repeat("/", 32), strings.Repeat("\x80", 32), strings.Repeat("\xff", 32), hex[1:]+"F", "-"+hex[1:])
}()

// leaseHistory draws the steps of one key.
type leaseHistory struct {
	*rand.Rand
	limits []core.Limit
	now    int64
	ids    []string
}

func newLeaseHistory(seed uint64) *leaseHistory {
	h := &leaseHistory{Rand: rand.New(rand.NewPCG(seed, 7)), now: start}
	period := pick(h.Rand, time.Millisecond, 3*time.Second, time.Hour, 6*time.Hour, core.MaxPeriod/2)
	for range 1 + h.IntN(3) {
		l := core.Limit{Algorithm: core.Concurrency, Quota: pick(h.Rand, int64(1), 2, 3, 5, 20, 10_000), Period: period}
		if h.IntN(3) == 0 {
			l.Period = min(core.MaxPeriod, pick(h.Rand, period/2+time.Millisecond, 2*period).Truncate(time.Microsecond))
		}
		h.limits = append(h.limits, l)
	}

	// Most histories have a few ids of one kind.
	h.ids = leaseIDs[:24]
	if h.IntN(4) == 0 {
		h.ids = leaseIDs
	}
	return h
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (h *leaseHistory) op() core.Op {
	l := h.limits[0]
	if h.IntN(6) == 0 {
		l = pick(h.Rand, h.limits...)
	}
	round := l.Period.Microseconds()
	h.now += pick(h.Rand, 0, 0, 0, 1, 7, round/7, round/3, round-1, round, round+1, -1, -round/5, -3*round)

	op := core.Op{Limit: l, Lease: pick(h.Rand, h.ids...)}
	op.Verb = pick(h.Rand, core.Take, core.Take, core.Take, core.Peek, core.Refund, core.Refund)
	op.Cost = pick(h.Rand, 1, 1, 1, 1, 2, 3, l.Quota/2+1, l.Quota, l.Quota+1, 1<<62)
	switch {
	case h.IntN(40) == 0:
		op.Verb = core.Reset
	case op.Verb == core.Peek && h.IntN(3) == 0:
		op.Cost, op.Lease = 0, ""
	case op.Verb == core.Take && op.Lease == "":
		op.Cost = 0
	}
	return op
}

// A key that is packed is decided as Decide decides its state, and holds the same leases, over
// histories with hostile ids, limits that change and a clock that steps back.
func TestTakeLeaseDecidesAsDecide(t *testing.T) {
	histories, inPlace, byDecide := 25_000, 0, 0
	if testing.Short() {
		histories = 1000
	}
	for seed := range histories {
		h := newLeaseHistory(uint64(seed))
		k, want := leasedKey{limit: h.limits[0]}, core.State{}
		for range 40 {
			op := h.op()
			before, d := want, make([]core.Decision, 1)
			want.Leases, want.Changed = slices.Clone(want.Leases), false
			core.Decide([]core.Op{op}, []*core.State{&want}, h.now, d)
			if !want.Changed {
				want = before
			} else if want.ForgetAfter(&d[0]) == 0 {
				want = core.State{Limit: want.Limit, Changed: true}
			}

			if k.takes(t, seed, &op, h.now, d[0]) {
				inPlace++
			} else if byDecide++; want.Changed {
				k.keep(t, h.Rand, &want)
			}

			if got := k.leases(); !slices.Equal(got, want.Leases) || len(got) > 0 && k.limit != want.Limit {
				t.Fatalf("history %d, %v %d of %q: holds %+v under %v, want %+v under %v",
					seed, op.Verb, op.Cost, op.Lease, got, k.limit, want.Leases, want.Limit)
			}
		}
	}
	if inPlace < 2*byDecide {
		t.Errorf("%d steps were decided in place, and %d by Decide", inPlace, byDecide)
	}
}

// takes compares TakeLease with the decision of Decide. It reports whether that decided.
func (k *leasedKey) takes(t *testing.T, seed int, op *core.Op, now int64, want core.Decision) bool {
	t.Helper()
	if op.Verb > core.Refund || len(k.rest) > 0 {
		return false
	}
	c, before := k.limit.Compact(), *k
	before.head, before.tail = slices.Clone(k.head), slices.Clone(k.tail)
	held := k.leases()

	// Fields of an earlier decision have to be overwritten: callers reuse the slice.
	got := core.Decision{Allowed: true, Origin: 7, Wait: 7, RetryAfter: 7, At: 7}
	tried := got
	good := op.Verb == core.Take && c.TryLease(k.used, k.mark, k.head, k.tail, op, now, &tried)
	if !slices.Equal(k.head, before.head) || !slices.Equal(k.tail, before.tail) {
		t.Fatalf("history %d: a try has changed the records", seed)
	}

	ok := c.TakeLease(&k.used, &k.mark, k.head, k.tail, op, now, &got)
	if ok && got != want {
		t.Fatalf("history %d, %v of %d for %q under %v at %d on %+v under %v\n got %+v\nwant %+v",
			seed, op.Verb, op.Cost, op.Lease, op.Limit, now, held, k.limit, got, want)
	}
	if op.Verb == core.Take && good != ok {
		t.Fatalf("history %d: tried %t, taken %t", seed, good, ok)
	}

	if good {
		before.peeked(t, seed, *op, now, tried)
	}
	if !ok && (k.used != before.used || k.mark != before.mark || !slices.Equal(k.leases(), held)) {
		t.Fatalf("history %d: a step that is left to Decide has changed the key", seed)
	}
	return ok
}

// peeked checks that a try has the decision on a Peek of the same cost for the same lease.
func (k *leasedKey) peeked(t *testing.T, seed int, op core.Op, now int64, tried core.Decision) {
	t.Helper()
	st := core.State{Limit: k.limit, Leases: k.leases()}
	op.Verb = core.Peek
	if want := decide(&st, now, op); tried != want {
		t.Fatalf("history %d: tried %+v, peeked %+v", seed, tried, want)
	}
}

// A key is fresh when its last lease ends.
func TestSpanOfLeases(t *testing.T) {
	l := mustParse(t, "5 concurrent ttl=1m")
	c := l.Compact()
	var used, mark int64
	head, d := make([]byte, 200), core.Decision{}
	for i := range 3 {
		op := core.Op{Limit: l, Cost: 1, Lease: leaseIDs[i]}
		if !c.TakeLease(&used, &mark, head, nil, &op, start+int64(i), &d) || !d.Allowed {
			t.Fatal(d)
		}
	}
	if began, fresh := c.Span(mark, nil); began != start+2 || fresh != start+2+60_000_000 {
		t.Errorf("from %d to %d", began, fresh)
	}
	if n := c.Leases(used); n != 3 {
		t.Errorf("%d leases", n)
	}
}
