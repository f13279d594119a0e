package failover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/store/memstore"
)

// twin is a store whose steps are copied one by one, or together. Twins have primaries and
// fallbacks of their own, which meet the same steps at the same instants.
type twin struct {
	*Store
	primary, fallback core.Store
}

func newTwin(t testing.TB, instances *int) *twin {
	p, f := memory(), memory()
	return &twin{over(t, p, Options{Fallback: f, Instances: func() int { return *instances }}), p, f}
}

// decided has the primary decide steps, of whose decisions no caller knows yet.
func (w *twin) decided(t testing.TB, steps [][]core.Op) []Decided {
	t.Helper()
	var list []Decided
	for _, ops := range steps {
		d := Decided{Ops: ops, Out: make([]core.Decision, len(ops))}
		if err := w.primary.Apply(context.Background(), d.Ops, d.Out); err != nil {
			t.Fatal(err)
		}
		list = append(list, d)
	}
	return list
}

// oneByOne copies first what would be copied together.
func (w *twin) oneByOne(list []Decided) {
	for i := range list {
		if d := &list[i]; joins(d.Ops, d.Out) {
			w.mirror.record(context.Background(), d.Ops, d.Out)
			d.Copied = true
		}
	}
	w.rest(list)
}

// rest copies what was not copied together, as the callers do.
func (w *twin) rest(list []Decided) {
	for i := range list {
		if d := &list[i]; d.Copied {
			w.together.gate(context.Background(), d.Ops, d.Out)
		} else {
			w.mirror.record(context.Background(), d.Ops, d.Out)
		}
	}
}

// historyLimits are of all kinds of counts, some of which never join.
var historyLimits = []string{
	"20/10s", "20/10s burst=5", "12/10s fixed-window", "12/10s fixed-window aligned", "12/10s sliding-log",
	"12/10s sliding-window", "12/10s token-bucket", "12/day", "3 concurrent ttl=10s", "1000/1s",
}

// randomStep returns a step of one to three rules about one of the keys.
func randomStep(t testing.TB, r *rand.Rand, keys int) (ops []core.Op) {
	key := fmt.Sprintf("k%d", r.IntN(keys))
	for n := range 1 + r.IntN(3)*r.IntN(2) {
		op := take(t, key, historyLimits[r.IntN(len(historyLimits))], 1+r.Int64N(4)*r.Int64N(2))
		op.Rule, op.Lease = fmt.Sprint("r", n, op.Limit), fmt.Sprint("lease", r.IntN(5))
		op.Soft = r.IntN(8) == 0

		switch r.IntN(16) {
		case 0:
			op.Verb = core.Debit
		case 1:
			op.Verb = core.Peek
		case 2:
			op.MaxWait = time.Second
		case 3, 4:
			op.Ban = &core.Ban{Strikes: 2, Within: 5 * time.Second, For: 3 * time.Second, Max: 6 * time.Second}
		}
		if op.Verb == core.Debit && op.Limit.MaxDebt() == 0 {
			op.Verb = core.Take
		}
		if op.Limit.Leased() {
			op.Verb, op.Ban = core.Take, nil
		}
		ops = append(ops, op)
	}
	return ops
}

// The copies of a whole batch leave what single ones leave: the same counts and bans, the same
// marks, and so the same refunds.
func TestCopiesTogetherEqualSingleOnes(t *testing.T) {
	histories := 300
	if testing.Short() {
		histories = 60
	}

	joined, drained := 0, 0
	for seed := range histories {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 1))
			instances := 1
			single, batch := newTwin(t, &instances), newTwin(t, &instances)
			keys := 1 + r.IntN(30)

			for range 12 {
				instances = 1 + r.IntN(3)

				// Another instance takes units of some keys, and time passes.
				var others, steps [][]core.Op
				for range r.IntN(4) {
					others = append(others, randomStep(t, r, keys))
				}
				for range 1 + r.IntN(60) {
					steps = append(steps, randomStep(t, r, keys))
				}

				// Some keys have credit, of which the fallback knows nothing.
				for _, ops := range steps[:len(steps)/4] {
					if op := granting(ops[0], 1+r.Int64N(5)); !op.Limit.Leased() {
						others = append(others, []core.Op{op})
					}
				}
				single.decided(t, others)
				batch.decided(t, others)

				a, b := single.decided(t, steps), batch.decided(t, steps)
				single.oneByOne(a)
				batch.together.Copy(b)
				for i := range b {
					if b[i].Copied != joins(b[i].Ops, b[i].Out) {
						t.Fatalf("copied: %t: %+v", b[i].Copied, b[i])
					}
					if b[i].Copied {
						joined++
					}
				}
				batch.rest(b)

				sameDecisions(t, a, b)
				drained += sameFallbacks(t, single, batch, steps)
				refundSome(t, r, single, batch, a, b)
				time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
			}
		})
	}
	if joined < 100*histories || drained == 0 {
		t.Errorf("%d steps were copied together, and %d keys have nothing left", joined, drained)
	}
}

func sameDecisions(t testing.TB, a, b []Decided) {
	t.Helper()
	for i := range a {
		for n := range a[i].Out {
			if a[i].Out[n] != b[i].Out[n] {
				t.Fatalf("step %d %+v: %+v one by one, %+v together", i, a[i].Ops, a[i].Out[n], b[i].Out[n])
			}
		}
	}
}

// sameFallbacks compares what the fallbacks have of the keys, and returns how many have nothing.
func sameFallbacks(t testing.TB, a, b *twin, steps [][]core.Op) (drained int) {
	t.Helper()
	for _, ops := range steps {
		for _, op := range ops {
			op.Verb, op.Cost, op.MaxWait, op.Soft = core.Peek, 1, 0, false
			op.Limit = a.mirror.copied(op.Limit)
			x, y := one(t, a.fallback, op), one(t, b.fallback, op)
			if x != y {
				t.Fatalf("%s %s %v: %+v one by one, %+v together", op.Rule, op.Key, op.Limit, x, y)
			}
			if x.Remaining == 0 {
				drained++
			}
		}
	}
	return drained
}

// refundSome gives back charges at both, which finds the copies by their marks.
func refundSome(t testing.TB, r *rand.Rand, a, b *twin, x, y []Decided) {
	t.Helper()
	for i := range x {
		d := x[i].Out[0]
		if r.IntN(6) > 0 || d.Taken == 0 || !core.Granted(x[i].Ops, x[i].Out) {
			continue
		}
		back := x[i].Ops[0].Refund(d)
		if p, q := one(t, a, back), one(t, b, y[i].Ops[0].Refund(y[i].Out[0])); p != q {
			t.Fatalf("refund of %+v: %+v one by one, %+v together", x[i].Ops[0], p, q)
		}
	}
}

// handingOut is a fallback that a test has grant units at the moment at which copies come.
type handingOut struct {
	core.Store
	before func()
}

func (g *handingOut) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if f := g.before; f != nil {
		g.before = nil
		f()
	}
	return g.Store.Apply(ctx, ops, out)
}

// The fallback grants five of ten units while the copies of six are on their way. The gate refuses
// the sixth, whose charge pays for one of the five.
func TestGateOfCopiesThatWereMadeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := memory(), &handingOut{Store: memory()}
		s := over(t, p, Options{Fallback: f})
		w := &twin{s, p, f}
		op := take(t, "k", "10/1h fixed-window", 1)

		other := op
		other.Key = "other"
		list := w.decided(t, [][]core.Op{{op}, {other}, {op}, {op}, {op}, {op}, {op}})

		local := 0
		f.before = func() {
			for range 5 {
				if one(t, s.Fallback(), op).Allowed {
					local++
				}
			}
		}
		s.together.Copy(list)
		w.rest(list)

		admitted := 0
		for i := range list {
			if !list[i].Copied {
				t.Errorf("step %d is not copied", i)
			}
			if list[i].Out[0].Allowed && list[i].Ops[0].Key == "k" {
				admitted++
			}
		}
		if local != 5 || admitted != 5 || remaining(t, f, op) != 0 {
			t.Errorf("%d of the primary and %d of the fallback, %d left, want 5, 5 and 0",
				admitted, local, remaining(t, f, op))
		}

		// While the key owes, its callers copy, each behind the gate.
		list = w.decided(t, [][]core.Op{{op}})
		if s.together.Copy(list); list[0].Copied {
			t.Error("copied together while a key owes")
		}
	})
}

// A charge that the gate refuses goes back in the fallback too, by the mark of its copy.
func TestGateTakesBackACopyThatWasMadeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, f := memory(), &handingOut{Store: memory()}
		s := over(t, p, Options{Fallback: f})
		w := &twin{s, p, f}

		// Another instance has three of the ten units, and the fallback grants two meanwhile.
		three, two, six := take(t, "k", "10/1h", 3), take(t, "k", "10/1h", 2), take(t, "k", "10/1h", 6)
		one(t, p, three)
		list := w.decided(t, [][]core.Op{{six}})
		f.before = func() { one(t, s.Fallback(), two) }
		s.together.Copy(list)
		w.rest(list)

		// Six are more than the five that are left. Two of them pay, and four go back.
		if d := list[0].Out[0]; d.Allowed || d.Taken != 0 || remaining(t, f, six) != 5 {
			t.Errorf("%+v, and %d left in the fallback, want a refusal and 5", d, remaining(t, f, six))
		}
	})
}

// A fallback that fails leaves the copies to the callers.
func TestFallbackThatFailsCopiesNothingTogether(t *testing.T) {
	p := memory()
	w := &twin{over(t, p, Options{Fallback: broken{}}), p, broken{}}
	list := w.decided(t, [][]core.Op{{take(t, "k", "10/1h", 1)}})
	if w.together.Copy(list); list[0].Copied || list[0].Out[0].Origin != 0 {
		t.Errorf("%+v", list[0])
	}
}

// broken is a fallback that fails.
type broken struct{}

func (broken) Apply(context.Context, []core.Op, []core.Decision) error { return errDown }

func TestCopyTogetherAllocatesNothing(t *testing.T) {
	if racing {
		test.Skip(t, "pools forget under the race detector")
	}
	f := memstore.MustNew(memstore.Options{})
	p := memory()
	w := &twin{over(t, p, Options{Fallback: f}), p, f}

	var steps [][]core.Op
	for i := range 40 {
		key := fmt.Sprint(i % 30)
		steps = append(steps, []core.Op{take(t, key, "1000000000/1s", 1), take(t, key, "3/1h", 1)}[i%2:i%2+1])
	}
	list := w.decided(t, steps)
	w.together.Copy(list)
	if n := testing.AllocsPerRun(100, func() { w.together.Copy(list) }); n != 0 {
		t.Errorf("%v allocations for the copies of %d steps", n, len(list))
	}
}
