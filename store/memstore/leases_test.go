package memstore

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
)

// leaseID is the id of lease i.
func leaseID(i int) string { return fmt.Sprintf("%032x", i) }

// leasing is a Take of lease i.
func leasing(key string, l core.Limit, i int) core.Op {
	op := takes(key, l)
	op.Lease = leaseID(i)
	return op
}

// checkTails checks that the tails of the shard lie apart, and that the bytes of no slot are
// counted.
func checkTails(t testing.TB, h *shard) {
	t.Helper()
	var all []tail
	held := 0
	for i, tag := range h.tags {
		if tag == free || !isLeased(h, i) {
			continue
		}
		if p := tailOf(h.slots[i].used); p != 0 {
			all, held = append(all, p), held+p.size()
		}
	}
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if end := 2*int(all[i-1]>>sizeBits) + all[i-1].size(); end > 2*int(all[i]>>sizeBits) {
			t.Fatalf("tail %d reaches into the next", i-1)
		}
	}
	if held+h.unused != len(h.tails.memory) {
		t.Fatalf("%d bytes held and %d unused of %d", held, h.unused, len(h.tails.memory))
	}
}

// Many keys with few and many leases, which come, end and are renewed, hold what a map of states
// holds, whatever moves the tails.
func TestTailsKeepTheirLeases(t *testing.T) {
	c := newClock()
	s, ref := oneShard(MustNew(Options{Clock: c.read})), reference{}
	r, l := rand.New(rand.NewPCG(1, 2)), limit("300 concurrent ttl=1h")
	var held []core.Op

	steps := 60_000
	if testing.Short() {
		steps = 10_000
	}
	for step := range steps {
		c.move(time.Duration(r.IntN(1000)) * time.Microsecond)

		// There are more and more leases for half of the steps, and then fewer.
		n := 1 + r.IntN(200)
		op := leasing(fmt.Sprintf("%0*d", 1+n%50, r.IntN(n)), l, r.IntN(1000))
		if grows := step < steps/2; len(held) > 0 && r.IntN(10) < 4 == grows {
			at := r.IntN(len(held))
			op = held[at]
			op.Verb = core.Refund
			held = slices.Delete(held, at, at+1)
		}

		got, want := do(t, s, op)[0], ref.apply([]core.Op{op}, c.now.Load())[0]
		if got != want {
			t.Fatalf("step %d: %+v, want %+v", step, got, want)
		}
		if op.Verb == core.Take && got.Allowed {
			held = append(held, op)
		}
		if step%1000 == 0 {
			checkTails(t, &s.shards[0])
			checkCounts(t, s)
		}
	}
	if s.shards[0].exts == nil || len(s.shards[0].tails.memory) == 0 {
		t.Error("no tails, or no long ones")
	}
}

// A write under a limit that is not interned may move the tails while the slot does not say yet
// what it is of. The first lease is packed and held, or is not packed and has ended.
func TestLeasesOfALimitThatIsNotInterned(t *testing.T) {
	full := newInterner()
	for i := range maxClasses - 1 {
		full.add(limitClassKey{"", core.Limit{Quota: int64(i + 1)}})
	}
	for _, row := range []struct {
		id    string
		later time.Duration
		held  int
	}{{heldLease, 0, 1}, {"x", time.Second, 0}} {
		s, c := newStore(t, 0)
		oneShard(s).classes, s.shards[0].classes = full, full

		// The key leaves no room for a lease.
		first := takes(strings.Repeat("k", maxText), limit("9 concurrent ttl=1s"))
		first.Lease = row.id
		do(t, s, first)
		c.move(row.later)

		for i := range 8 {
			op := leasing(first.Key, limit("9 concurrent ttl=1h"), i)
			if d := do(t, s, op)[0]; !d.Allowed || d.Remaining != int64(8-row.held-i) {
				t.Errorf("after %q: %+v for lease %d", row.id, d, i)
			}
			checkTails(t, &s.shards[0])
			checkCounts(t, s)
		}
	}
}

// A key that has once held many leases takes little memory when few are held.
func TestLeasesGiveTheirMemoryBack(t *testing.T) {
	if !test.Alone(t) {
		return
	}

	s, c := newStore(t, 0)
	oneShard(s)
	l := limit("10000 concurrent ttl=1h")
	before := heap()
	for i := range 10_000 {
		if !do(t, s, leasing("key", l, i))[0].Allowed {
			t.Fatal("refused")
		}
	}
	full := heap() - before
	for i := 1; i < 10_000; i++ {
		release := leasing("key", l, i)
		release.Verb = core.Refund
		do(t, s, release)
	}

	// A sweep comes a second later, with a step of any key.
	for range 10 {
		c.move(time.Second)
		do(t, s, takes("other", limit("9/1h")))
	}
	if left := heap() - before; full < 10_000*22 || left > full/20 {
		t.Errorf("%.0f bytes for 10,000 leases, and %.0f for the one that is left", full, left)
	}
	if d := do(t, s, peeks("key", l))[0]; d.Remaining != 9_999 {
		t.Errorf("%+v, want one lease", d)
	}

	// The last one ends, and with it the slot.
	release := leasing("key", l, 0)
	release.Verb = core.Refund
	do(t, s, release)
	for range 10 {
		c.move(time.Second)
		do(t, s, takes("other", limit("9/1h")))
	}
	if s.Len() != 1 || len(s.shards[0].tails.memory) > 0 {
		t.Errorf("%d keys, tails of %d bytes", s.Len(), len(s.shards[0].tails.memory))
	}
}

// The tails of a shard give their memory back when their keys are gone.
func TestTailsGiveTheirMemoryBack(t *testing.T) {
	s, c := newStore(t, 0)
	oneShard(s)
	l := limit("9 concurrent ttl=1h")
	for i := range 9 * 1000 {
		do(t, s, leasing(fmt.Sprintf("key%d", i%1000), l, i))
	}
	h := &s.shards[0]
	full := cap(h.tails.memory)
	checkTails(t, h)

	c.move(2 * time.Hour)
	for s.Len() > 101 {
		c.move(time.Millisecond)
		do(t, s, takes("other", limit("9/1h")))
	}
	checkTails(t, h)
	if left := cap(h.tails.memory); full < 1000*8*22 || left > full/4 {
		t.Errorf("%d bytes of 1000 keys, %d of 100", full, left)
	}
}

// New keys with a tail, which come and go where few keys have one, seldom move the tails: that
// looks at all slots of the shard.
func TestTailsOfFewKeysSeldomMove(t *testing.T) {
	for _, live := range []int{0, 1, 5} {
		s, _ := newStore(t, 0)
		oneShard(s)
		l, name := limit("9 concurrent ttl=1h"), strings.Repeat("k", 20)
		for i := range live {
			do(t, s, leasing(fmt.Sprint(name, "live", i), l, i))
		}

		moves, before := 0, unsafe.SliceData(s.shards[0].tails.memory)
		for i := range 1000 {
			op := leasing(fmt.Sprint(name, i), l, i)
			do(t, s, op)
			if now := unsafe.SliceData(s.shards[0].tails.memory); now != before {
				moves, before = moves+1, now
			}
			op.Verb = core.Reset
			do(t, s, op)
		}
		if moves > 1000/20 {
			t.Errorf("%d live keys: the tails were moved %d times for 1000 keys", live, moves)
		}
	}
}

// Acquiring and releasing allocates nothing, alone and in a step of several rules, with few leases
// and many.
func TestKnownLeasesAllocateNothing(t *testing.T) {
	for _, n := range []int{0, 1, 5, 200} {
		s, _ := newStore(t, 0)
		l, other := limit("1000 concurrent ttl=1h"), takes("key", limit("1000000/1h"))
		do(t, s, other)
		for i := range n {
			do(t, s, leasing("key", l, i))
		}
		take := leasing("key", l, n)
		release := take
		release.Verb = core.Refund
		peek := peeks("key", l)

		alone, both, out := []core.Op{take}, []core.Op{other, take}, make([]core.Decision, 2)
		looked, released := []core.Op{peek}, []core.Op{release}
		cycle := func() {
			for _, ops := range [][]core.Op{alone, looked, alone, released, both, released} {
				if err := s.Apply(t.Context(), ops, out); err != nil || !out[0].Allowed {
					t.Fatal(err, out)
				}
			}
		}
		cycle()
		if got := testing.AllocsPerRun(200, cycle); got != 0 {
			t.Errorf("%d leases: %v allocations", n, got)
		}
	}
}

// What is counted for keys that hold all the leases of their limit is at least what they take, and
// a little more.
func TestBytesOfLeasesAreThoseOfTheHeap(t *testing.T) {
	if testing.Short() {
		t.Skip("it fills 100 MB")
	}
	if !test.Alone(t) {
		return
	}

	for _, row := range []struct{ leases, keys int }{{0, 350_000}, {1, 350_000}, {3, 350_000}, {100, 20_000}} {
		before := heap()
		s := MustNew(Options{MaxKeys: row.keys, Clock: newClock().read})
		empty := s.Bytes()
		l := core.Limit{Algorithm: core.Concurrency, Quota: int64(max(1, row.leases)), Period: time.Hour}
		ops, out := make([]core.Op, 1), make([]core.Decision, 1)

		// The keys get one lease after the other, so that their tails grow.
		for i := range row.keys * max(1, row.leases) {
			ops[0] = leasing(fmt.Sprintf("key%010d", i%row.keys), l, i)
			if err := s.Apply(t.Context(), ops, out); err != nil || !out[0].Allowed {
				t.Fatal(out[0], err)
			}
			if row.leases == 0 {
				ops[0].Verb = core.Refund
				_ = s.Apply(t.Context(), ops, out)
			}
		}
		if s.Len() != row.keys {
			t.Errorf("%d keys are held, want %d", s.Len(), row.keys)
		}

		// A table is between 3/4 and 7/8 full, and is counted as if it were less.
		took, counted := heap()-before, float64(s.Bytes())
		if took > counted || took < counted*0.86 {
			t.Errorf("%d leases: %.0f bytes in the heap, %.0f are counted", row.leases, took, counted)
		}
		n := float64(row.keys)
		t.Logf("%d leases: %.1f bytes of a key, counted as %.1f", row.leases, took/n, (counted-float64(empty))/n)
		runtime.KeepAlive(s)
	}
}
