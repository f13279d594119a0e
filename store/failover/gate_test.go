package failover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
)

// slowly are limits of 30 under which no unit comes back in a test.
var slowly = []string{
	"30/1000h", "30/1000h burst=30", "30/1000h fixed-window", "30/1000h sliding-log", "30/1000h sliding-window",
	"30/1000h token-bucket", "30/year",
}

var errBusy = fmt.Errorf("too much: %w", core.ErrOverload)

// unsent is the error of a step that was not sent.
type unsent struct{ error }

func (unsent) Unsent() bool    { return true }
func (u unsent) Unwrap() error { return u.error }

// detained is a primary that carries out steps at once. The test says when their answers come,
// and what they are.
type detained struct {
	core.Store

	mu      sync.Mutex
	pending []chan error // of the steps, in their order
	open    bool         // answers come at once
	refuses error        // steps fail at once
}

func (d *detained) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	d.mu.Lock()
	if d.refuses != nil {
		defer d.mu.Unlock()
		return d.refuses
	}
	err := d.Store.Apply(ctx, ops, out)
	if d.open || ops[0].UpTo || ops[0].Soft || ops[0].Verb != core.Take { // a payment, a probe, a refund
		d.mu.Unlock()
		return err
	}
	answer := make(chan error, 1)
	d.pending = append(d.pending, answer)
	d.mu.Unlock()
	return errors.Join(err, <-answer)
}

// answer has the answer to the pending step i come.
func (d *detained) answer(i int, err error) {
	d.mu.Lock()
	c := d.pending[i]
	d.pending = slices.Delete(d.pending, i, i+1)
	d.mu.Unlock()
	c <- err
	synctest.Wait()
}

func (d *detained) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.pending)
}

func (d *detained) set(open bool, refuses error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open, d.refuses = open, refuses
}

// crowd sends Takes and counts the units that were admitted.
type crowd struct {
	t        *testing.T
	mu       sync.Mutex
	admitted int64
	all      sync.WaitGroup
}

func (c *crowd) send(s core.Store, ops ...core.Op) {
	c.all.Go(func() {
		out := make([]core.Decision, len(ops))
		for i := range ops {
			ops[i] = inWindows(ops[i])
		}
		if err := s.Apply(context.Background(), ops, out); err != nil {
			c.t.Error(err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := range out {
			c.admitted += out[i].Taken
			checkRefusal(c.t, &ops[i], &out[i])
		}
	})
	synctest.Wait()
}

// checkRefusal checks that a decision does not contradict itself.
func checkRefusal(t testing.TB, op *core.Op, d *core.Decision) {
	t.Helper()
	if !d.Allowed && (d.RetryAfter <= 0 || d.Taken != 0 || d.Remaining >= op.Cost && !op.UpTo || d.RetryAfter > d.ResetAfter) {
		t.Errorf("refused cost %d: %+v", op.Cost, *d)
	}
}

func newDetained() *detained { return &detained{Store: newFake().Store} }

// orders are in which answers come: a permutation for each.
var orders = map[string]func(n int) int{
	"in order":         func(int) int { return 0 },
	"the latest first": func(n int) int { return n - 1 },
	"in any order":     rand.IntN,
}

// Thirty steps are at the primary when the fallback has to decide. The limit is granted once.
func TestLateAnswersAdmitNothingBeyondTheLimit(t *testing.T) {
	for _, text := range slowly {
		for name, next := range orders {
			for _, local := range []int64{0, 1, 5, 17, 30} {
				t.Run(fmt.Sprint(text, " ", name, " ", local), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p := newDetained()
						s := over(t, p, Options{Fallback: memory()})
						defer s.Close()
						c := &crowd{t: t}
						for range 30 {
							c.send(s, take(t, "k", text, 1))
						}
						p.set(false, errBusy)
						for range local {
							c.send(s, take(t, "k", text, 1))
						}
						if c.admitted != local {
							t.Fatalf("%d by the fallback", c.admitted)
						}
						for n := p.waiting(); n > 0; n-- {
							p.answer(next(n), nil)
						}
						p.set(true, nil)
						for range 40 {
							c.send(s, take(t, "k", text, 1))
							c.send(s.Fallback(), take(t, "k", text, 1))
						}
						c.all.Wait()
						if c.admitted != 30 {
							t.Errorf("%d of 30", c.admitted)
						}
					})
				})
			}
		}
	}
}

// Whatever happens and in whatever order, an instance admits at most the limit, and two that
// believe to be alone at most twice. If each answer comes at last, one admits all of it.
func TestScheduleAdmitsAtMostTheLimitForEachInstance(t *testing.T) {
	for _, text := range slowly {
		for _, row := range []struct {
			size  int
			lost  []error // what becomes of some answers
			least int64
		}{
			{1, []error{errBusy, errDown}, 10}, {2, []error{errBusy, errDown}, 10}, {1, []error{nil}, 30}, {2, []error{nil}, 30},
		} {
			t.Run(fmt.Sprint(text, " ", row.size, row.lost), func(t *testing.T) {
				for range 10 {
					seed := rand.Uint64()
					synctest.Test(t, func(t *testing.T) {
						n := runSchedule(t, text, row.size, row.lost, rand.New(rand.NewPCG(seed, 1)))
						if n < row.least || n > int64(row.size)*30 {
							t.Errorf("seed %d: %d of 30 by %d", seed, n, row.size)
						}
					})
				}
			})
		}
	}
}

// runSchedule has a number of instances decide about a key while the primary is late, has too
// much to do, and goes away. It returns how many units were admitted.
func runSchedule(t *testing.T, text string, size int, lost []error, r *rand.Rand) int64 {
	p := newDetained()
	var fleet []*Store
	for range size {
		s := over(t, p, Options{Fallback: memory()})
		defer s.Close()
		fleet = append(fleet, s)
	}
	c := &crowd{t: t}
	for range 150 {
		s := fleet[r.IntN(size)]
		n := p.waiting()
		switch k := r.IntN(20); {
		case k < 8:
			c.send(s, take(t, "k", text, 1+r.Int64N(3)))
		case k < 13 && n > 0:
			p.answer(r.IntN(n), nil)
		case k < 14 && n > 0:
			p.answer(r.IntN(n), lost[r.IntN(len(lost))]) // it was charged
		case k < 16:
			p.set(false, unsent{[]error{errBusy, errDown}[r.IntN(2)]})
		case k < 18:
			p.set(false, nil)
		default:
			time.Sleep(time.Duration(r.IntN(300)) * ms)
			synctest.Wait()
		}
	}
	for n := p.waiting(); n > 0; n-- {
		p.answer(r.IntN(n), nil)
	}
	p.set(true, nil)
	time.Sleep(time.Second)
	for range 40 {
		for _, s := range fleet {
			c.send(s, take(t, "k", text, 1))
		}
		time.Sleep(200 * ms) // units that were taken back reach the primary
		synctest.Wait()
	}
	c.all.Wait()
	return c.admitted
}

// spans are limits of 30 under which units come back within a test, with the most units that
// each admits in any span of a period: see the comments of the algorithms. Segments of a
// sliding window add what one of them held. A log in the fallback has no place for what the
// primary admits while it is full of units that are not as old, and may grant as much later:
// once more the limit.
var spans = map[string]int64{
	"30/1m": 60, "30/1m burst=10": 40, "30/1m fixed-window": 60, "30/1m sliding-log": 60, "30/1m sliding-window": 60,
	"30/1m token-bucket": 60,
}

// admission is a number of units at an instant.
type admission struct {
	at    time.Time
	units int64
}

// Units come back while the primary is late, has too much to do, and goes away. In any span of
// a period one instance admits what the algorithm admits.
func TestScheduleInTimeAdmitsWhatTheAlgorithmDoes(t *testing.T) {
	for text, most := range spans {
		t.Run(text, func(t *testing.T) {
			for range 10 {
				seed := rand.Uint64()
				synctest.Test(t, func(t *testing.T) {
					list := runSpans(t, text, rand.New(rand.NewPCG(seed, 3)))
					for i := range list {
						n := int64(0)
						for j := i; j < len(list) && list[j].at.Sub(list[i].at) < time.Minute; j++ {
							n += list[j].units
						}
						if n > most {
							t.Errorf("seed %d: %d of %d in a minute from %s", seed, n, most, list[i].at)
							return
						}
					}
				})
			}
		})
	}
}

// runSpans sends units to a store whose primary fails in each way, and returns what was
// admitted.
func runSpans(t *testing.T, text string, r *rand.Rand) (list []admission) {
	p := newDetained()
	s := over(t, p, Options{Fallback: memory()})
	defer s.Close()
	var mu sync.Mutex
	var all sync.WaitGroup
	send := func() {
		op := take(t, "k", text, 1+r.Int64N(4))
		all.Go(func() {
			if d := one(t, s, op); d.Taken > 0 {
				mu.Lock()
				defer mu.Unlock()
				list = append(list, admission{time.Now(), d.Taken})
			}
		})
		synctest.Wait()
	}
	for range 300 {
		for range r.IntN(6) {
			send()
		}
		switch r.IntN(6) {
		case 0:
			p.set(false, unsent{errBusy})
		case 1:
			p.set(false, errDown)
		case 2, 3:
			p.set(false, nil)
		}
		for n := p.waiting(); n > 0; n-- {
			p.answer(r.IntN(n), nil)
		}
		time.Sleep(time.Duration(r.IntN(3000)) * ms)
		synctest.Wait()
	}
	all.Wait()
	return list
}
