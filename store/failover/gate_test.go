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
	pending []chan error  // of the steps, in their order
	left    []*lateAnswer // of the steps whose callers have left
	open    bool          // answers come at once
	refuses error         // steps fail at once
}

func (d *detained) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	// A primary that refuses does so before anything is charged.
	d.mu.Lock()
	if d.refuses != nil {
		defer d.mu.Unlock()
		return d.refuses
	}

	err := d.Store.Apply(ctx, ops, out)

	// What is not a step of a caller is answered at once.
	if d.open || ops[0].UpTo || ops[0].Soft || ops[0].Verb != core.Take { // a payment, a probe, a refund
		d.mu.Unlock()
		return err
	}

	answer := make(chan error, 1)
	d.pending = append(d.pending, answer)
	d.mu.Unlock()

	// The answer has been made, and the caller gets it, an error with it, or hears that it comes
	// late.
	if became := <-answer; became != errLeft {
		return errors.Join(err, became)
	}

	late := &lateAnswer{ops: slices.Clone(ops), out: slices.Clone(out)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = append(d.left, late)
	return late
}

// errLeft becomes of a step whose caller leaves before the answer comes.
var errLeft = errors.New("left")

// tell has the answer come to a step whose caller has left.
func (d *detained) tell(i int) {
	d.mu.Lock()
	a := d.left[i]
	d.left = slices.Delete(d.left, i, i+1)
	d.mu.Unlock()
	a.decide()
	synctest.Wait()
}

func (d *detained) gone() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.left)
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
		// Windows are those of the instant at which the step is sent.
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

	// It returns when the step is answered or hangs, so that schedules are in order.
	synctest.Wait()
}

// checkRefusal checks that a decision does not contradict itself.
func checkRefusal(t testing.TB, op *core.Op, d *core.Decision) {
	t.Helper()
	late := d.RetryAfter > d.ResetAfter && d.RetryAfter != core.Never
	if !d.Allowed && (d.RetryAfter <= 0 || d.Taken != 0 || d.Remaining >= op.Cost && !op.UpTo || late) {
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

						// Thirty steps hang at the primary, which has charged the whole limit of
						// thirty by then.
						for range 30 {
							c.send(s, take(t, "k", text, 1))
						}

						// The primary has too much to do, so the fallback decides about more.
						p.set(false, errBusy)
						for range local {
							c.send(s, take(t, "k", text, 1))
						}

						if c.admitted != local {
							t.Fatalf("%d by the fallback", c.admitted)
						}

						// Now the thirty answers come, in the order of the row. What the fallback
						// has granted is theirs no more.
						for n := p.waiting(); n > 0; n-- {
							p.answer(next(n), nil)
						}

						// Further steps get nothing, neither here nor from the fallback.
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
		// size is the number of instances. least is what one of them admits at least: all of it if
		// every answer comes, and less if some are lost.
		for _, row := range []struct {
			size  int
			lost  []error // what becomes of some answers
			least int64
		}{
			{1, []error{errBusy, errDown}, 10}, {2, []error{errBusy, errDown}, 10}, {1, []error{nil}, 30},
			{2, []error{nil}, 30},
			{1, []error{errLeft}, 30}, {2, []error{errLeft}, 30}, {1, []error{errBusy, errLeft}, 10},
		} {
			t.Run(fmt.Sprint(text, " ", row.size, row.lost), func(t *testing.T) {
				// The seeds are new in each run and named in the failure; every other run is with
				// parts.
				for i := range 10 {
					seed, parts := rand.Uint64(), i%2 == 1
					synctest.Test(t, func(t *testing.T) {
						n := runSchedule(t, text, row.size, row.lost, parts, rand.New(rand.NewPCG(seed, 1)))
						if n < row.least || n > int64(row.size)*30 {
							t.Errorf("seed %d, parts %v: %d of 30 by %d", seed, parts, n, row.size)
						}
					})
				}
			})
		}
	}
}

// schedule is what happens to instances that decide about a key.
type schedule struct {
	*crowd
	text     string
	fleet    []*Store
	primary  *detained
	lost     []error // what becomes of some answers
	believed []int   // the numbers of instances that each believes in, the present one first
	r        *rand.Rand
}

// runSchedule has a number of instances decide about a key while the primary is late, has too
// much to do, and goes away. It returns how many units were admitted. With parts the number
// of instances is not known at first, and rises.
func runSchedule(t *testing.T, text string, size int, lost []error, parts bool, r *rand.Rand) int64 {
	c := &schedule{crowd: &crowd{t: t}, text: text, primary: newDetained(), lost: lost, believed: []int{1}, r: r}

	// The first belief makes each grant one unit, and the later ones ever smaller parts.
	if parts {
		c.believed = []int{UnknownInstances, 1, 2, 3}
	}

	for range size {
		s := over(t, c.primary, Options{Fallback: memory(), Instances: func() int { return c.believed[0] }})
		defer s.Close()
		c.fleet = append(c.fleet, s)
	}

	for range 150 {
		c.step()
	}

	// When every answer has come, what is left of the limit has to be found by asking often enough.
	c.answerAll()
	for range 40 {
		for _, s := range c.fleet {
			c.send(s, take(t, "k", text, 1))
		}
		time.Sleep(200 * ms) // units that were taken back reach the primary
		synctest.Wait()
	}

	c.all.Wait()
	return c.admitted
}

// step has one thing happen.
func (c *schedule) step() {
	p, n, r := c.primary, c.primary.waiting(), c.r

	// Steps are sent more often than answered, so that they pile up at the primary.
	switch k := r.IntN(20); {
	case k < 8:
		c.send(c.fleet[r.IntN(len(c.fleet))], take(c.t, "k", c.text, 1+r.Int64N(3)))
	case k < 13 && n > 0:
		p.answer(r.IntN(n), nil)
	case k < 14 && n > 0:
		p.answer(r.IntN(n), c.lost[r.IntN(len(c.lost))]) // it was charged
	case k < 16:
		p.set(false, unsent{[]error{errBusy, errDown}[r.IntN(2)]})
	case k < 17:
		p.set(false, nil)

	// A late answer comes at last, or the number of instances is known better.
	case k < 18 && p.gone() > 0:
		p.tell(r.IntN(p.gone()))
	case k < 19 && len(c.believed) > 1:
		c.believed = c.believed[1:]
	default:
		time.Sleep(time.Duration(r.IntN(300)) * ms)
		synctest.Wait()
	}
}

// answerAll has all answers come, and the primary be well.
func (c *schedule) answerAll() {
	p := c.primary
	for n := p.waiting(); n > 0; n-- {
		p.answer(c.r.IntN(n), nil)
	}
	for n := p.gone(); n > 0; n-- {
		p.tell(c.r.IntN(n))
	}
	p.set(true, nil)
	time.Sleep(time.Second)
}

// spans are limits of 30 under which units come back within a test, with the most units that
// the algorithm admits in any span of a period: see the comments of the algorithms.
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
// a period one instance admits what the algorithm admits in each of the two stores.
func TestScheduleInTimeAdmitsWhatTheAlgorithmDoesInEachStore(t *testing.T) {
	for text, most := range spans {
		t.Run(text, func(t *testing.T) {
			for range 10 {
				seed := rand.Uint64()
				synctest.Test(t, func(t *testing.T) {
					list := runSpans(t, text, rand.New(rand.NewPCG(seed, 3)))

					// Every admission begins a span of a minute.
					for i := range list {
						n := int64(0)
						for j := i; j < len(list) && list[j].at.Sub(list[i].at) < time.Minute; j++ {
							n += list[j].units
						}

						if n > 2*most {
							t.Errorf("seed %d: %d of %d in a minute from %s", seed, n, 2*most, list[i].at)
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

	// Bursts of up to five steps, and then the primary gets well or fails in one of the ways.
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

		// What hangs is answered in any order.
		for n := p.waiting(); n > 0; n-- {
			p.answer(r.IntN(n), nil)
		}

		time.Sleep(time.Duration(r.IntN(3000)) * ms)
		synctest.Wait()
	}

	all.Wait()
	return list
}

// An instance that does not know how many others there are counts what the primary admits in
// full, and has no more left when it learns that there are none.
func TestPartThatGrowsAtTheStartGrantsNothingTwice(t *testing.T) {
	for _, text := range slowly {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, op, n := newFake(), take(t, "k", text, 1), UnknownInstances
				s := over(t, f, Options{Fallback: memory(), Instances: func() int { return n }})
				defer s.Close()

				// Twenty of thirty units are granted by the primary, and each is counted in the
				// fallback though the part is one.
				for range 20 {
					one(t, s, op)
				}

				// The part grows to the whole, of which ten units are left.
				n = 1
				busy(f)
				if got := admitted(t, s, op); got != 10 {
					t.Errorf("%d more, want 10", got)
				}
			})
		})
	}
}
