package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
)

// queue sends requests one after another, so that their order of arrival is known.
type queue struct {
	t     *testing.T
	wg    sync.WaitGroup
	start time.Time

	mu  sync.Mutex
	got []string
}

func newQueue(t *testing.T) *queue { return &queue{t: t, start: time.Now()} }

// send lets a request arrive, which works for the span if it is admitted.
func (q *queue) send(name string, l *limiter.Limiter, r core.Request, work time.Duration) {
	q.wg.Go(func() {
		a := l.Admit(r)
		defer a.Done(200)
		q.note(name, a)
		if a.Outcome() == limiter.Pass {
			time.Sleep(work)
		}
	})
	synctest.Wait()
}

func (q *queue) note(name string, a *limiter.Admission) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.got = append(q.got, fmt.Sprintf("%s %s at %s", name, a.Outcome(), time.Since(q.start)))
}

// want waits for all requests, and fails unless they were answered at these instants.
// Of those that were answered at one instant, either may come first.
func (q *queue) want(list ...string) {
	q.t.Helper()
	q.wg.Wait()
	slices.Sort(q.got)
	slices.Sort(list)
	if !slices.Equal(q.got, list) {
		q.t.Errorf("got  %q\nwant %q", q.got, list)
	}
}

// at waits until the span after the start.
func (q *queue) at(d time.Duration) { time.Sleep(d - time.Since(q.start)); synctest.Wait() }

// costing is a request of a cost and a key.
func costing(n, key string) *test.Request {
	return &test.Request{Headers: map[string][]string{"X-Cost": {n}, "X-Key": {key}}}
}

// leased is a rule under which requests wait for leases, with the costs of costing.
func leased(t *testing.T, name, text string, maxWait time.Duration) limiter.Rule {
	t.Helper()
	r := waiting(t, name, text, maxWait)
	r.Cost = func(r core.Request) int64 {
		if lines := r.Header("X-Cost"); len(lines) > 0 {
			return int64(lines[0][0] - '0')
		}
		return 1
	}
	return r
}

// asking is a store that counts what it is asked, by verb.
type asking struct {
	core.Store
	mu    sync.Mutex
	takes []time.Duration
	peeks int
	start time.Time
}

func newAsking(s core.Store) *asking { return &asking{Store: s, start: time.Now()} }

func (s *asking) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	s.mu.Lock()
	switch ops[0].Verb {
	case core.Take:
		s.takes = append(s.takes, time.Since(s.start))
	case core.Peek:
		s.peeks++
	}
	s.mu.Unlock()
	return s.Store.Apply(ctx, ops, out)
}

// after returns the instants of the takes after d.
func (s *asking) after(d time.Duration) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []time.Duration
	for _, at := range s.takes {
		if at > d {
			list = append(list, at)
		}
	}
	return list
}

func TestLineIsServedAtTheRelease(t *testing.T) {
	for _, ttl := range []string{"2s", "30s"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, newTicking(), leased(t, "jobs", "1 concurrent ttl="+ttl, 20*time.Second))
			q := newQueue(t)
			for _, name := range []string{"a", "b", "c"} {
				q.send(name, l, get(), 210*ms)
			}
			q.want("a pass at 0s", "b pass at 210ms", "c pass at 420ms")
			wantLeft(t, l, "k", 1)
		})
	}
}

// A store that is not in memory is asked in the background.
func TestLineIsServedWhenTheReleaseIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		far := storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
			time.Sleep(3 * ms)
			// The second sleep is the way back: the answer arrives 6 ms after the question.
			defer time.Sleep(3 * ms)
			return s.Apply(ctx, ops, out)
		})
		l := newLimiter(t, far, leased(t, "jobs", "1 concurrent ttl=30s", time.Minute))

		q := newQueue(t)
		q.send("a", l, get(), 210*ms)
		// The request a holds its lease by then, so that b finds it taken and stands in the line.
		q.at(10 * ms)
		q.send("b", l, get(), 210*ms)

		// a works until 216 ms. Its release is answered 6 ms later, and so is the question of b:
		// asked before that answer, the store would have refused it.
		q.want("a pass at 6ms", "b pass at 228ms")
		l.AwaitReleases()
	})
}

func TestLineKeepsTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), leased(t, "jobs", "3 concurrent ttl=30s", time.Minute))
		q := newQueue(t)

		// d would fit at 10 ms, when a ends. It waits behind c, which needs all three units: or
		// else a request of many units would starve.
		q.send("a", l, costing("1", ""), 10*ms)
		q.send("b", l, costing("2", ""), 20*ms)
		q.send("c", l, costing("3", ""), 30*ms)
		q.send("d", l, costing("1", ""), 40*ms)
		q.send("e", l, costing("2", ""), 50*ms)
		q.send("f", l, costing("1", ""), 60*ms)

		q.want("a pass at 0s", "b pass at 0s", "c pass at 20ms", "d pass at 50ms", "e pass at 50ms", "f pass at 90ms")
		wantLeft(t, l, "k", 3)
	})
}

// One release makes one request ask. It asks again at the next one if it was refused.
func TestLineReleaseWakesOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAsking(newTicking())
		l := newLimiter(t, s, leased(t, "jobs", "2 concurrent ttl=30s", time.Minute))
		q := newQueue(t)

		q.send("a", l, get(), 10*ms)
		q.send("b", l, get(), 20*ms)
		// c needs both units: the release of a wakes it in vain, that of b serves it.
		q.send("c", l, costing("2", ""), 10*ms)
		for i := range 5 {
			q.send(fmt.Sprint(i), l, get(), 30*ms)
		}

		// Of the five behind c none asked at 10 or 20 ms. The two units of c serve two of them at
		// 30 ms, without a poll.
		q.at(45 * ms)
		if got, want := s.after(0), []time.Duration{10 * ms, 20 * ms, 30 * ms, 30 * ms}; !slices.Equal(got, want) ||
			s.peeks != 5 {
			t.Errorf("asked at %s, and %d peeks", got, s.peeks)
		}

		q.want("a pass at 0s", "b pass at 0s", "c pass at 20ms", "0 pass at 30ms", "1 pass at 30ms",
			"2 pass at 60ms", "3 pass at 60ms", "4 pass at 90ms")
	})
}

// The leases of another process are asked for 20 times a second, however many wait.
func TestLineAsksTwentyTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		counted := newAsking(s)
		other := newLimiter(t, s, rule(t, "jobs", "1 concurrent ttl=1m"))
		l := newLimiter(t, counted, leased(t, "jobs", "1 concurrent ttl=1m", 3*time.Second))

		// The other limiter stands for another process: its release wakes no waiter here.
		held, err := other.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}

		q := newQueue(t)
		for range 100 {
			q.send("", l, get(), 0)
		}

		// A hundred wait, and the first asks each 50 ms for all. The 99 behind it only peeked when
		// they came.
		q.at(1020 * ms)
		if got := counted.after(0); len(got) != 20 || got[0] != 50*ms || got[19] != 1000*ms || counted.peeks != 99 {
			t.Errorf("asked at %s, and %d peeks", got, counted.peeks)
		}

		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		// The next poll serves the first. As each works for no time, its release serves the one
		// behind it at the same instant.
		q.want(slices.Repeat([]string{" pass at 1.05s"}, 100)...)
		if got := counted.after(1020 * ms); len(got) != 100 || got[0] != 1050*ms || got[99] != 1050*ms {
			t.Errorf("asked at %s", got)
		}
	})
}

func TestLineEndsWithTheLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		counted := newAsking(s)
		other := newLimiter(t, s, rule(t, "jobs", "1 concurrent ttl=1m"))
		l := newLimiter(t, counted, leased(t, "jobs", "1 concurrent ttl=1m", time.Second))

		// The lease is held for a minute, so that no wait of a second can end with it.
		if _, err := other.Take(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}

		q := newQueue(t)
		q.send("a", l, get(), 0)
		q.at(30 * ms)

		// The second arrives at 30 ms and gives up at 1.03 s. The lease ends at 60 s, thus 58.97 s
		// later, which Retry-After rounds up.
		var wg sync.WaitGroup
		wg.Go(func() {
			a := l.Admit(get())
			defer a.Done(429)
			d := a.Result().Decisions()[0].Decision
			if a.Outcome() != limiter.Refused || !slices.Equal(a.Violated(), []string{"jobs"}) ||
				a.RetryAfter() != 59 ||
				a.Result().Waited() != time.Second || d.At != time.Now().UnixMicro() || d.RetryAfter != 58970*ms ||
				d.ResetAfter != 58970*ms {
				t.Errorf("%s by %v, retry after %d, waited %s, %+v", a.Outcome(), a.Violated(), a.RetryAfter(),
					a.Result().Waited(), d)
			}
		})

		wg.Wait()
		q.want("a refused at 1s")
		// The second asks where the first would have asked.
		if got := counted.after(0); len(got) != 20 || got[18] != 950*ms || got[19] != 1000*ms {
			t.Errorf("asked at %s", got)
		}
	})
}

// A lease whose holder has died ends with its ttl.
func TestLineIsServedWhenALeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), leased(t, "jobs", "1 concurrent ttl=1010ms", time.Minute))
		if _, err := l.Take(t.Context(), "k", 1); err != nil { // which is not renewed
			t.Fatal(err)
		}
		q := newQueue(t)
		q.send("a", l, get(), 10*ms)
		q.send("b", l, get(), 10*ms)
		q.want("a pass at 1.01s", "b pass at 1.02s")
	})
}

func TestLineGoesOnWithoutAClientThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute))
		ctx, leave := context.WithCancel(t.Context())

		q := newQueue(t)
		q.send("a", l, get(), 210*ms)
		q.send("b", l, &test.Request{Ctx: ctx}, 10*ms)
		q.send("c", l, get(), 10*ms)
		q.send("d", l, &test.Request{Ctx: ctx}, 10*ms)
		q.send("e", l, get(), 10*ms)

		q.at(100 * ms)
		leave()
		q.want("a pass at 0s", "b refused at 100ms", "d refused at 100ms", "c pass at 210ms", "e pass at 220ms")
		// A lease given to one that left would be missing here.
		wantLeft(t, l, "k", 1)
	})
}

// Behind a client that leaves, the next asks at once if units are left, and only then.
func TestLineHandsOnWhatIsLeft(t *testing.T) {
	for held, want := range map[string]struct {
		at   string
		asks int // right after the client has left
	}{"2": {"20ms", 1}, "3": {"210ms", 0}} {
		synctest.Test(t, func(t *testing.T) {
			s := newAsking(newTicking())
			l := newLimiter(t, s, leased(t, "jobs", "3 concurrent ttl=30s", time.Minute))
			ctx, leave := context.WithCancel(t.Context())

			q := newQueue(t)
			q.send("a", l, costing(held, ""), 210*ms)
			// b asks for all three units, so that c waits behind it whatever is free.
			big := costing("3", "")
			big.Ctx = ctx
			q.send("b", l, big, 0)
			q.send("c", l, get(), 0)

			// b leaves. With 2 held c fits at once; with 3 held asking would be in vain until the
			// release.
			q.at(20 * ms)
			leave()
			q.at(30 * ms)
			// The first poll is due at 50 ms: what was asked until now came from the handing on.
			if n := len(s.after(0)); n != want.asks {
				t.Errorf("%s held: asked %d times, want %d", held, n, want.asks)
			}

			q.want("a pass at 0s", "b refused at 20ms", "c pass at "+want.at)
		})
	}
}

// The turn of a client that leaves before it has asked goes to the next.
func TestLineHandsOnTheTurnOfAClientThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		gone := errors.New("gone")
		// The client leaves during the release that gives it its turn, so before it has asked.
		ctx, leave := context.WithCancelCause(t.Context())
		l := newLimiter(t, storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
			err := s.Apply(ctx, ops, out)
			if ops[0].Verb == core.Refund {
				leave(gone)
			}
			return err
		}), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute))

		q := newQueue(t)
		q.send("a", l, get(), 210*ms)
		q.wg.Go(func() { // may be admitted at the instant at which it leaves
			res, err := l.TakeWithin(ctx, "k", 1, time.Minute)
			if err != nil && !errors.Is(err, gone) && !errors.Is(err, context.Canceled) ||
				time.Since(q.start) != 210*ms {
				t.Errorf("%v after %s", err, time.Since(q.start))
			}
			if err := res.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})

		synctest.Wait()
		// Without the hand-over c would have to wait for the next poll.
		q.send("c", l, get(), 0)
		q.want("a pass at 0s", "c pass at 210ms")
		wantLeft(t, l, "k", 1)
	})
}

// A lease that the store gave to a client which has left before the answer is released.
func TestLeaseOfAClientThatLeftBeforeTheAnswer(t *testing.T) {
	for name, maxWait := range map[string]time.Duration{"in a line": time.Minute, "without a wait": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTicking()
				ctx, leave := context.WithCancel(t.Context())
				// The store takes the lease and its answer is lost, as with a connection that ends
				// in between. Only the context of the client that leaves meets it.
				l := newLimiter(t, storeFunc(func(within context.Context, ops []core.Op, out []core.Decision) error {
					err := s.Apply(within, ops, out)
					if ops[0].Verb == core.Take && within == ctx && out[0].Allowed {
						leave()
						return ctx.Err() // though the lease is taken
					}
					return err
				}), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute))

				q := newQueue(t)
				// In a line the client has its turn at the release of a. Otherwise it asks at once.
				if maxWait > 0 {
					q.send("a", l, get(), 210*ms)
				}
				q.wg.Go(func() {
					var err error
					if maxWait > 0 {
						_, err = l.TakeWithin(ctx, "k", 1, maxWait)
					} else {
						_, err = l.Take(ctx, "k", 1)
					}
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})

				synctest.Wait()
				// c passes only if the lease of the lost answer was given back, as it would not
				// expire for 30 s.
				q.send("c", l, get(), 0)
				if maxWait > 0 {
					q.want("a pass at 0s", "c pass at 210ms")
				} else {
					q.want("c pass at 0s")
				}

				wantLeft(t, l, "k", 1)
			})
		})
	}
}

func TestLineEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute))
		q := newQueue(t)
		for _, name := range []string{"a", "b", "c"} {
			q.send(name, l, get(), 200*ms)
		}

		// Close comes while a works. It ends the waits, not the request that was admitted.
		q.at(30 * ms)
		if err := l.Close(); err != nil {
			t.Error(err)
		}

		// After Close no request waits, whether or not its turn would come.
		q.send("d", l, get(), 0)
		q.want("a pass at 0s", "b refused at 30ms", "c refused at 30ms", "d refused at 30ms")
		wantLeft(t, l, "k", 1)
	})
}

func TestLineIsServedDuringShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute))
		q := newQueue(t)
		for _, name := range []string{"a", "b", "c", "d"} {
			q.send(name, l, get(), 200*ms)
		}

		closed := make(chan error, 1)
		go func() {
			_, err := l.TakeWithin(t.Context(), "k", 1, time.Minute)
			closed <- err
		}()

		// No store can say when a lease is released, so waits for leases end 100 ms before the
		// deadline: at 410 ms. Until then b and c have their turn.
		q.at(30 * ms)
		ctx, cancel := context.WithTimeout(t.Context(), 480*ms)
		defer cancel()
		if err := l.Shutdown(ctx); err != nil || time.Since(q.start) != 410*ms {
			t.Errorf("%v after %s", err, time.Since(q.start))
		}

		q.want("a pass at 0s", "b pass at 200ms", "c pass at 400ms", "d refused at 410ms")
		// TakeWithin, at the end of the line, hears that it was the limiter which ended its wait.
		if err := <-closed; !errors.Is(err, limiter.ErrClosed) {
			t.Error(err)
		}
		wantLeft(t, l, "k", 1)
	})
}

func TestLineEndsAtOnceWithAShortShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute))
		q := newQueue(t)
		q.send("a", l, get(), 20*ms)
		q.send("b", l, get(), 20*ms)

		// The line has until 100 ms before the deadline, so it ends at once, although b would have
		// its turn at 20 ms.
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		if err := l.Shutdown(ctx); err != nil || time.Since(q.start) != 0 {
			t.Errorf("%v after %s", err, time.Since(q.start))
		}

		q.want("a pass at 0s", "b refused at 0s")
	})
}

// A request waits for the slot that it has booked after it has waited for a lease.
func TestLineBesideABookedSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute),
			waiting(t, "smooth", "1/1s burst=1", time.Minute))
		q := newQueue(t)
		for _, name := range []string{"a", "b", "c"} {
			q.send(name, l, get(), 210*ms)
		}
		q.want("a pass at 0s", "b pass at 1s", "c pass at 2s")
		wantLeft(t, l, "k", 1, 0)
	})
}

// A request that has a lease and waits for its slot does not stand in the way of others.
func TestLineBehindABookedSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perUser := waiting(t, "user", "1/1s burst=1", time.Minute)
		perUser.Key = byHeader
		l := newLimiter(t, newTicking(), leased(t, "jobs", "2 concurrent ttl=30s", time.Minute), perUser)
		q := newQueue(t)
		// x2 waits for its slot until 1 s, long after the leases are free: y, which came later,
		// takes one of them at 210 ms.
		q.send("x1", l, costing("2", "x"), 210*ms)
		q.send("x2", l, costing("1", "x"), 10*ms)
		q.send("y", l, costing("1", "y"), 10*ms)

		q.want("x1 pass at 0s", "x2 pass at 1s", "y pass at 210ms")
	})
}

// A request that waits for a window is not in the way, and has its turn by its arrival.
func TestLineBesideAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perUser := waiting(t, "user", "1/1s fixed-window", time.Minute)
		perUser.Key = byHeader
		l := newLimiter(t, newTicking(), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute), perUser)

		q := newQueue(t)
		// The window of x is used up until 1 s. Until then b has no use for the lease, and c takes
		// it.
		q.send("a", l, costing("1", "x"), 210*ms)
		q.send("b", l, costing("1", "x"), 210*ms)
		q.send("c", l, costing("1", "y"), 900*ms)

		q.at(300 * ms)
		// At 1.11 s, when c ends, b is served before d, as it came before it.
		q.send("d", l, costing("1", "z"), 210*ms)

		q.want("a pass at 0s", "c pass at 210ms", "b pass at 1.11s", "d pass at 1.32s")
	})
}

// Of two rules with leases, each has its line.
func TestLineOfEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perUser := leased(t, "user", "1 concurrent ttl=30s", time.Minute)
		perUser.Key = byHeader
		l := newLimiter(t, newTicking(), leased(t, "all", "2 concurrent ttl=30s", time.Minute), perUser)

		q := newQueue(t)
		// x2 waits for the lease of its user. It came before z1, and must not hold that up when y1
		// ends at 110 ms.
		q.send("x1", l, costing("1", "x"), 310*ms)
		q.send("x2", l, costing("1", "x"), 10*ms)
		q.send("y1", l, costing("1", "y"), 110*ms)
		q.send("z1", l, costing("1", "z"), 110*ms)
		q.send("x3", l, costing("1", "x"), 10*ms)

		q.want("x1 pass at 0s", "y1 pass at 0s", "z1 pass at 110ms", "x2 pass at 310ms", "x3 pass at 320ms")
		wantLeft(t, l, "k", 2, 1)
	})
}

// A request that another rule refuses does not begin to wait, also behind others.
func TestLineOnlyForRequestsThatMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		l := newLimiter(t, s, leased(t, "jobs", "2 concurrent ttl=30s", time.Minute),
			rule(t, "hard", "3/1m fixed-window"))
		q := newQueue(t)
		q.send("a", l, costing("2", ""), 210*ms)
		q.send("b", l, costing("2", ""), 210*ms)
		q.send("c", l, costing("3", ""), 0) // more than the limit holds
		q.send("d", l, costing("1", ""), 0)

		q.at(100 * ms)
		if res, err := l.Take(t.Context(), "k", 1); err != nil || res.Allowed() { // does not wait
			t.Errorf("allowed %t, %v", res.Allowed(), err)
		}
		// b and d wait without a charge: of the three units of the window only that of a is gone.
		wantLeft(t, l, "k", 0, 2)

		q.want("a pass at 0s", "c refused at 0s", "b pass at 210ms", "d pass at 420ms")
		wantLeft(t, l, "k", 2, 0)

		// The window is used up, so that e is refused at once: it does not wait for a lease only to
		// be refused.
		q.send("e", l, get(), 0)
		q.want("a pass at 0s", "c refused at 0s", "b pass at 210ms", "d pass at 420ms", "e refused at 420ms")
	})
}

// A request that needs no unit of a lease has nothing to wait for.
func TestLineNotForRequestsWithoutCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute))
		q := newQueue(t)
		q.send("a", l, get(), 210*ms)
		q.send("b", l, get(), 0)
		q.send("c", l, costing("0", ""), 0)
		q.want("a pass at 0s", "b pass at 210ms", "c pass at 0s")
	})
}

// switching is a store with a fallback, whose own side fails while down is positive, and
// counts it down.
type switching struct {
	core.Store
	down     atomic.Int64
	fallback core.Store
}

func (s *switching) Back() (core.Standby, func()) {
	return core.Standby{Store: s, Strict: s.strict(), Fallback: s.fallback}, nil
}

func (s *switching) strict() core.Store {
	return storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
		if s.down.Add(-1) >= 0 {
			return errDown
		}
		return s.Apply(ctx, ops, out)
	})
}

// Behind others a request asks twice, and the store may fail the first time or both.
func TestLineBesideARuleThatFailsOpen(t *testing.T) {
	for _, failures := range []int64{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			jobs := leased(t, "jobs", "1 concurrent ttl=30s", time.Minute)
			jobs.OnStoreError = limiter.FailOpen
			local := rule(t, "local", "9/1m fixed-window")
			// If the store fails, jobs lets requests pass, and the fallback decides about local.
			s := &switching{Store: newTicking(), fallback: newTicking()}
			l := newLimiter(t, s, jobs, local)

			q := newQueue(t)
			q.send("a", l, get(), 30*ms)
			q.send("b", l, get(), 30*ms)

			q.at(10 * ms)
			// c peeks, as b waits before it, and asks once more: one fault hits the first question,
			// two hit both.
			s.down.Store(failures)
			q.send("c", l, get(), 30*ms)

			q.at(70 * ms)
			if failures == 1 {
				wantLeft(t, l, "k", 0, 6) // c holds the lease
				q.want("a pass at 0s", "b pass at 30ms", "c pass at 60ms")
				wantLeft(t, l, "k", 1, 6)
			} else {
				q.want("a pass at 0s", "b pass at 30ms", "c pass at 10ms")
				wantLeft(t, l, "k", 1, 7)
				wantLeft(t, newLimiter(t, s.fallback, local), "k", 8) // where c was counted
			}
		})
	}
}

// Every way in which units come back wakes the first of the line.
func TestLineIsServedByEveryRelease(t *testing.T) {
	ways := map[string]func(*testing.T, *limiter.Limiter, *limiter.Result) error{
		"Release": func(t *testing.T, _ *limiter.Limiter, res *limiter.Result) error {
			return res.Release(t.Context())
		},
		"Refund": func(t *testing.T, _ *limiter.Limiter, res *limiter.Result) error { return res.Refund(t.Context()) },
		"Reset":  func(t *testing.T, l *limiter.Limiter, _ *limiter.Result) error { return l.Reset(t.Context(), "k") },
		"ResetRequest": func(_ *testing.T, l *limiter.Limiter, _ *limiter.Result) error {
			return l.ResetRequest(get())
		},
	}
	for name, release := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, newTicking(), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute))
				res, err := l.Take(t.Context(), "k", 1)
				if err != nil {
					t.Fatal(err)
				}

				q := newQueue(t)
				q.send("a", l, get(), 0)
				// The poll would come at 50 ms: at 10 ms only the release itself can have woken the
				// line.
				q.at(10 * ms)
				if err := release(t, l, res); err != nil {
					t.Error(err)
				}

				q.want("a pass at 10ms")
			})
		})
	}

	// The leases of requests end with the request, or with the connection that it was upgraded to.
	for name, end := range leaseEnds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, newTicking(), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute))
				held := l.Admit(get())
				q := newQueue(t)
				q.send("a", l, get(), 0)
				q.at(10 * ms)
				end(held)
				q.want("a pass at 10ms")
			})
		})
	}
}

func TestLineIsServedByAReleaseThatIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The first refund fails. It is tried again in the background after 100 ms.
		s, down := newTicking(), true
		l := newLimiter(t, storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
			if ops[0].Verb == core.Refund && down {
				down = false
				return errDown
			}
			return s.Apply(ctx, ops, out)
		}), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute))

		q := newQueue(t)
		q.send("a", l, get(), 25*ms)
		q.send("b", l, get(), 0)
		// Without a second try the lease would end after 30 s.
		q.want("a pass at 0s", "b pass at 125ms")
	})
}

func TestLineIsServedAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute))
		q := newQueue(t)
		q.wg.Go(func() {
			defer func() { _ = recover() }()
			a := l.Admit(get())
			defer a.Done(500)
			time.Sleep(25 * ms)
			panic("oops")
		})
		synctest.Wait()
		q.send("a", l, get(), 0)
		q.want("a pass at 25ms")
	})
}

// A release between the answer to a request and its place in the line is not missed.
func TestLineMissesNoRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		var l *limiter.Limiter
		var held *limiter.Result

		// The lease is released within the very call that refuses the request: the store has
		// answered, and the request is not in the line yet.
		l = newLimiter(t, storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
			err := s.Apply(ctx, ops, out)
			if res := held; res != nil && ops[0].Verb == core.Take {
				held = nil
				if err := res.Release(ctx); err != nil {
					t.Error(err)
				}
			}
			return err
		}), leased(t, "jobs", "1 concurrent ttl=30s", time.Minute))

		res, err := l.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		// From here on the next Take is the one that is interfered with.
		held = res

		q := newQueue(t)
		q.send("a", l, get(), 0)
		q.want("a pass at 0s")
	})
}

// A store that fails ends the waits of all, one after another.
func TestLineEndsIfTheStoreFails(t *testing.T) {
	for mode, want := range map[limiter.FailureMode]string{limiter.FailClosed: "failed", limiter.FailOpen: "pass"} {
		synctest.Test(t, func(t *testing.T) {
			s, down := newTicking(), atomic.Bool{}
			l := configured(t, limiter.Config{OnStoreError: mode,
				Rules: []limiter.Rule{leased(t, "jobs", "1 concurrent ttl=30s", time.Minute)},
				Store: storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
					if down.Load() {
						return errDown
					}
					return s.Apply(ctx, ops, out)
				})})

			q := newQueue(t)
			q.send("a", l, get(), 10*ms)
			q.send("b", l, get(), 0)
			q.send("c", l, get(), 0)
			// a ends at 10 ms, and its release fails too. The poll of b at 50 ms is the first to
			// learn of it, and c asks right behind b.
			down.Store(true)
			q.want("a pass at 0s", "b "+want+" at 50ms", "c "+want+" at 50ms")
		})
	}
}

func TestLineServesTakeWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), rule(t, "jobs", "1 concurrent ttl=30s"))
		start := time.Now()
		for i := range 4 {
			res, err := l.TakeWithin(t.Context(), "k", 1, time.Minute)
			if err != nil || !res.Allowed() || time.Since(start) != time.Duration(i)*210*ms {
				t.Errorf("turn %d: allowed %t, %v after %s", i, res.Allowed(), err, time.Since(start))
			}
			// The next turn comes with this release, and no earlier: 210 ms after the turn before.
			time.AfterFunc(210*ms, func() {
				if err := res.Release(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}

		time.Sleep(time.Second)
		wantLeft(t, l, "k", 1)
	})
}

func TestLineIsBounded(t *testing.T) {
	for _, c := range []limiter.Config{{MaxWaiters: 2}, {MaxWaitersPerKey: 2}} {
		synctest.Test(t, func(t *testing.T) {
			c.Store, c.Rules = newTicking(), []limiter.Rule{leased(t, "jobs", "1 concurrent ttl=30s", time.Minute)}
			l := configured(t, c)
			q := newQueue(t)
			for _, name := range []string{"a", "b", "c", "d"} {
				q.send(name, l, get(), 210*ms)
			}

			// At 300 ms b works and c waits, so that one of two places is free: for e, not for f.
			q.at(300 * ms)
			q.send("e", l, get(), 0)
			q.send("f", l, get(), 0)

			q.want("a pass at 0s", "d queue_full at 0s", "b pass at 210ms", "f queue_full at 300ms",
				"c pass at 420ms", "e pass at 630ms")
		})
	}
}

// Requests of random costs and lengths are served in the order of arrival, each at the
// first instant at which it fits.
func TestLineServesEachAtItsInstant(t *testing.T) {
	const quota, requests = 5, 400
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			l := configured(t, limiter.Config{Store: newTicking(), MaxWaitersPerKey: requests,
				Rules: []limiter.Rule{leased(t, "jobs", fmt.Sprintf("%d concurrent ttl=1h", quota), time.Hour)}})

			// The model knows when each request begins and ends: at the first instant that holds
			// its units, and never before the one in front of it.
			var wg sync.WaitGroup
			start, last := time.Now(), time.Duration(0)
			var held []span
			for i := range requests {
				time.Sleep(time.Duration(random.IntN(20_000)) * time.Microsecond)
				cost, work := 1+random.Int64N(quota), time.Duration(random.IntN(40_000))*time.Microsecond
				last = firstFit(held, quota, cost, max(last, time.Since(start)))
				held = append(held, span{last, last + work, cost})
				want := last

				// The limiter must come to the same instant, to the microsecond.
				wg.Go(func() {
					a := l.Admit(costing(fmt.Sprint(cost), ""))
					defer a.Done(200)
					if got := time.Since(start); a.Outcome() != limiter.Pass || got != want {
						t.Errorf("seed %d, request %d: %s at %s, want %s", seed, i, a.Outcome(), got, want)
					}
					time.Sleep(work)
				})
				synctest.Wait()
			}

			wg.Wait()
			wantLeft(t, l, "k", quota)
		})
	}
}

// span is how long units are held.
type span struct {
	from, to time.Duration
	units    int64
}

// firstFit returns the first instant, not before at, at which the units are free.
func firstFit(held []span, quota, units int64, at time.Duration) time.Duration {
	for {
		// next is the first end among the requests that hold units at this instant, or -1 if there
		// is none.
		used, next := int64(0), time.Duration(-1)
		for _, s := range held {
			if s.from <= at && at < s.to {
				used += s.units
				if next < 0 || s.to < next {
					next = s.to
				}
			}
		}

		if used+units <= quota {
			return at
		}

		// Between two ends nothing becomes free, so the next end is the next candidate.
		at = next
	}
}
