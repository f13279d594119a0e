package limiter_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// leaver is a request of the cost, and the function by which its client leaves.
func leaver(t *testing.T, cost string) (*test.Request, context.CancelFunc) {
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	r := costing(cost, "")
	r.Ctx = ctx
	return r, leave
}

// reserve books a slot far ahead, of which the instant comes after the span.
func reserve(t *testing.T, l *limiter.Limiter, want time.Duration) {
	t.Helper()
	r, err := l.Reserve(t.Context(), "k", 1)
	if err != nil {
		t.Fatal(err)
	}
	if d := r.Delay(); d != want {
		t.Errorf("reserved after %s, want %s", d, want)
	}
}

// Where others book far ahead, a line does too.
func TestSlotGoesToTheNextWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		l := newLimiter(t, s, leased(t, "a", "1/1s burst=1", time.Minute))
		// Another has booked 1 s, so the line of b and c books ahead too: 2 s and 3 s.
		q := newQueue(t)
		q.send("a", l, get(), 0)
		reserve(t, l, time.Second)
		first, leave := leaver(t, "1")
		q.send("b", l, first, 0)
		q.send("c", l, get(), 0)

		// b leaves. Its slot of 2 s goes to c within the line, and the one of 3 s back.
		q.at(400 * ms)
		calls := s.asked()
		leave()
		q.at(900 * ms)
		if s.asked() != calls {
			t.Errorf("%d calls of the store", s.asked()-calls)
		}

		q.want("a pass at 0s", "b refused at 400ms", "c pass at 2s")
	})
}

// A slot of another cost goes back, so that the next books from the same instant on.
func TestSlotOfAnotherCostGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), leased(t, "a", "2/2s burst=2", time.Minute))
		q := newQueue(t)
		// The units come one a second: a takes two, the reservation has 1 s, b is to have two until
		// 3 s.
		q.send("a", l, costing("2", ""), 0)
		reserve(t, l, time.Second)
		big, leave := leaver(t, "2")
		q.send("b", l, big, 0) // books 3 s
		q.send("c", l, costing("1", ""), 0)
		q.send("d", l, costing("2", ""), 0)

		// Once b has left, c books 2 s for its one unit, and d two more until 4 s. The slot of b
		// would have served c at 3 s.
		q.at(400 * ms)
		leave()
		q.want("a pass at 0s", "b refused at 400ms", "c pass at 2s", "d pass at 4s")
	})
}

func TestSlotOfAClientThatLeavesAtItsInstant(t *testing.T) {
	// The leaving and the instant of the slot race at 100 ms: twenty times, as either may win.
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, newTicking(), leased(t, "a", "10/1s burst=1", time.Minute))
			q := newQueue(t)
			q.send("a", l, get(), 0)
			r, leave := leaver(t, "1")
			var outcome limiter.Outcome
			q.wg.Go(func() {
				a := l.Admit(r)
				outcome = a.Outcome()
				a.Done(200)
			})

			synctest.Wait()
			q.send("c", l, get(), 0)
			time.AfterFunc(100*ms-time.Since(q.start), leave)
			q.wg.Wait()

			// Who is admitted has used the slot of 100 ms. Who is not leaves it to c, and it is not
			// lost.
			if outcome == limiter.Pass {
				q.want("a pass at 0s", "c pass at 200ms")
			} else {
				q.want("a pass at 0s", "c pass at 100ms")
			}
		})
	}
}

func TestSlotAfterTheDeadlineOfAShutdownGoesBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), leased(t, "a", "1/1s burst=1", time.Minute),
			rule(t, "day", "9/1d fixed-window"))

		q := newQueue(t)
		q.send("a", l, get(), 0)
		q.send("b", l, get(), 0)

		// b has its slot at 1 s, after the end of the shutdown, so it is refused now.
		ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
		defer cancel()
		if err := l.Shutdown(ctx); err != nil {
			t.Error(err)
		}

		q.want("a pass at 0s", "b refused at 0s")
		// The day is charged for a alone.
		wantLeft(t, l, "k", 0, 8)
	})
}

// A crowd books nothing far ahead of need, and one slot where others do book.
func TestSlotsOfACrowdAreOne(t *testing.T) {
	for _, reserved := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newTicking()
			// The store answers late, so that the whole crowd comes before its first answer.
			l := newLimiter(t, tripping(s, 2*ms), rule(t, "a", "1/1s burst=1"))
			other := newLimiter(t, s, rule(t, "a", "1/1s burst=1"))
			admit(other)
			for range reserved {
				reserve(t, other, time.Second)
			}

			ctx, leave := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if _, err := l.TakeWithin(ctx, "k", 1, core.MaxBooking); err != nil && err != context.Canceled {
						t.Error(err)
					}
				})
			}

			// What the other process books next shows what the crowd has booked: nothing, or one
			// slot behind the reservation.
			time.Sleep(100 * ms)
			reserve(t, other, time.Duration(1+2*reserved)*time.Second-100*ms)

			leave()
			wg.Wait()
		})
	}
}

// A request that comes to its line while a younger one asks does not ask too.
func TestSlotOfAnOlderRequestIsThatOfTheYounger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		other := newLimiter(t, s, rule(t, "a", "1/1s burst=1"))
		// The other has booked ahead, so that this process does too.
		admit(other)
		reserve(t, other, time.Second)

		var calls atomic.Int64
		late := storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
			answer := []time.Duration{10 * ms, 0, 20 * ms, 0}[min(calls.Add(1)-1, 3)]
			defer time.Sleep(answer)
			return s.Apply(ctx, ops, out)
		})

		l := newLimiter(t, late, waiting(t, "a", "1/1s burst=1", time.Minute))
		q := newQueue(t)
		q.send("older", l, get(), 0) // is answered after 10 ms
		q.at(5 * ms)
		q.send("younger", l, get(), 0) // asks again from 5 to 25 ms

		// Only one of both has booked by now: the instant at 2 s is taken, and the next reservation
		// is at 3 s.
		q.at(100 * ms)
		reserve(t, other, 2900*ms) // behind one slot

		q.want("older pass at 2.02s", "younger pass at 4s")
	})
}

// A slot behind which another process has booked stays with the process, for its next request.
func TestSlotThatCannotGoBackIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		one := newLimiter(t, s, leased(t, "a", "1/1s burst=1", time.Minute))
		two := newLimiter(t, s, leased(t, "a", "1/1s burst=1", time.Minute))

		q := newQueue(t)
		// one books 2 s for b, and two 3 s for c behind it: then the store cannot take back 2 s.
		q.send("a", one, get(), 0)
		reserve(t, two, time.Second)
		r, leave := leaver(t, "1")
		q.send("b", one, r, 0)
		q.send("c", two, get(), 0)
		leave()

		// d comes in time for the slot that b has left, and uses it.
		q.at(300 * ms)
		q.send("d", one, get(), 0)
		q.want("a pass at 0s", "b refused at 0s", "c pass at 3s", "d pass at 2s")

		// Once more, but no request comes for the slot before its instant.
		reserve(t, two, time.Second)
		again, leaveAgain := leaver(t, "1")
		q = newQueue(t)
		q.send("e", one, again, 0) // is to have 2 s
		q.send("f", two, get(), 0)
		leaveAgain()
		q.want("e refused at 0s", "f pass at 3s")
		if one.Lines() != 0 || two.Lines() != 0 { // the slot that e left is forgotten
			t.Errorf("%d and %d lines are left", one.Lines(), two.Lines())
		}
	})
}

// A request whose turn is too late behind those who wait is refused when it comes.
func TestWaitBehindOthersIsRefusedAtOnce(t *testing.T) {
	for _, row := range []struct {
		limit string
		turns []time.Duration // of requests that come at once
	}{
		// The last of the turns is that of the request which may not wait for so long.
		{"1/1s burst=1", []time.Duration{0, 1, 2, 3, 4}},
		{"2/2s", []time.Duration{0, 0, 1, 2, 3, 4}},
		{"2/2s fixed-window", []time.Duration{0, 0, 2, 2, 4}},
		{"2/2s sliding-log", []time.Duration{0, 0, 2, 2, 4}},
		{"2/2s token-bucket", []time.Duration{0, 0, 2, 2, 4}},
	} {
		t.Run(row.limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				last := row.turns[len(row.turns)-1] * time.Second
				l := newLimiter(t, newTicking(), waiting(t, "a", row.limit, last-time.Microsecond))
				q := newQueue(t)

				var want []string
				for i, turn := range row.turns[:len(row.turns)-1] {
					q.send(fmt.Sprint(i), l, get(), 0)
					want = append(want, fmt.Sprintf("%d pass at %s", i, turn*time.Second))
				}

				// The line knows when the last would have its turn. That is 1 µs more than it may
				// wait, so it is refused when it comes and not when its time is up.
				a := l.Admit(get())
				d := a.Result().Decisions()[0].Decision
				if a.Outcome() != limiter.Refused || d.RetryAfter != last ||
					a.RetryAfter() != int64(last/time.Second) || a.Result().Waited() != 0 {
					t.Errorf("%s, %+v, retry after %d, waited %s", a.Outcome(), d, a.RetryAfter(), a.Result().Waited())
				}

				a.Done(429)
				res, err := l.TakeWithin(t.Context(), "k", 1, last) // just in time
				if err != nil || !res.Allowed() || time.Since(q.start) != last {
					t.Errorf("allowed %t, %v at %s", res.Allowed(), err, time.Since(q.start))
				}

				q.want(want...)
			})
		})
	}
}

// One who opens a thousand connections and closes them takes no turn of others.
func TestWaitBesideConnectionsThatOpenAndClose(t *testing.T) {
	for _, text := range []string{"10/1s burst=1", "1/100ms fixed-window", "1/100ms token-bucket"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := configured(t, limiter.Config{Store: newTicking(), MaxWaitersPerKey: 1000,
					Rules: []limiter.Rule{waiting(t, "a", text, 5*time.Second)}})

				q := newQueue(t)
				q.send("before", l, get(), 0)

				want := []string{"before pass at 0s"}
				done := make(chan struct{})
				// Each turn, 100 ms apart, a hundred connections come and are closed after 20 ms.
				for i := range 10 {
					for range 100 { // behind the client before, and in front of the next
						r, leave := leaver(t, "1")
						go func() {
							l.Admit(r).Done(200)
							done <- struct{}{}
						}()
						time.AfterFunc(20*ms, leave)
					}
					synctest.Wait()
					if i > 0 { // until then the line takes those connections for clients
						q.send(fmt.Sprint(i), l, get(), 0)
						want = append(want, fmt.Sprintf("%d pass at %s", i, time.Duration(i)*100*ms))
					}

					for range 100 {
						<-done
					}
				}

				q.want(want...)
			})
		})
	}
}

// A request waits in the line of the rule that it lacks longest, and holds nothing of others.
func TestWaitUnderSeveralRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perUser := waiting(t, "user", "1/3s burst=1", time.Minute)
		perUser.Key = byHeader
		l := newLimiter(t, newTicking(), waiting(t, "all", "1/1s burst=1", time.Minute), perUser)

		q := newQueue(t)
		// x2 and x3 wait for their user, and leave the turns at 1 s and 2 s to others.
		q.send("x1", l, keyed("x"), 0)
		q.send("x2", l, keyed("x"), 0)
		q.send("x3", l, keyed("x"), 0)
		q.send("y1", l, keyed("y"), 0)
		q.send("z1", l, keyed("z"), 0)

		q.want("x1 pass at 0s", "x2 pass at 3s", "x3 pass at 6s", "y1 pass at 1s", "z1 pass at 2s")
	})
}

// Requests of several costs keep their order, and the limit is used to the full.
func TestWaitWithSeveralCosts(t *testing.T) {
	for _, text := range []string{"10/1s burst=3", "10/1s fixed-window"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, newTicking(), rule(t, "a", text))
				c := crowd{clients: 4, patience: []time.Duration{300 * ms, 20 * time.Second, 700 * ms},
					max:  5 * time.Second,
					cost: func(i int) int64 { return int64(1 + i%3) }}
				per := c.send(t, l)

				for i, n := range per[1:] {
					if n < 9 || n > 11 { // a request of 3 may come after the end of a second
						t.Errorf("%d units in second %d", n, i+1)
					}
				}

				c.wantOrder(t)
			})
		})
	}
}

// One who opens and closes connections at a process of its own takes the part of that process.
func TestWaitBesideAProcessThatBooksAndLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.MustNew(memstore.Options{})
		var l [4]*limiter.Limiter
		for i := range l {
			l[i] = newLimiter(t, s, rule(t, "a", "10/1s burst=1"))
		}
		// Fifty requests wait at each of three processes.
		start := time.Now()
		var served [3]atomic.Int64
		for i := range served {
			for range 50 {
				go func() {
					res, err := l[i].TakeWithin(t.Context(), "k", 1, time.Minute)
					if err == nil && res.Allowed() && time.Since(start) < 10*time.Second {
						served[i].Add(1)
					}
				}()
			}
		}

		// The fourth process has one client, which comes again and again, waits for a slot and
		// leaves before its instant. It hides that it will, so that the line books for it.
		for time.Since(start) < 10*time.Second {
			ctx, leave := context.WithTimeoutCause(context.Background(), 150*ms, errDown)
			_, _ = l[3].TakeWithin(noDeadline{ctx}, "k", 1, time.Minute)
			leave()
		}

		// Of 100 turns in 10 s each process has its quarter.
		for i := range served {
			if n := served[i].Load(); n < 24 { // of 100 for all four
				t.Errorf("process %d served %d", i, n)
			}
		}

		for i := range l {
			_ = l[i].Close()
		}
	})
}

// noDeadline hides the deadline of a client that leaves.
type noDeadline struct{ context.Context }

func (noDeadline) Deadline() (at time.Time, ok bool) { return }

// Those who come while the store decides count too.
func TestWaitBehindThoseWhoCameMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		far := storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
			defer time.Sleep(10 * ms)
			return s.Apply(ctx, ops, out)
		})

		l := newLimiter(t, far, waiting(t, "a", "1/1s fixed-window", 1500*ms))
		// Both ask at once, and hear 10 ms later that the window has no unit left. The first of
		// them waits for the next one; the second would have to wait for the one after, at 2 s.
		admit(l)
		wantTally(t, admitAtOnce(l, 2, get()), map[arrival]int{
			{limiter.Refused, 10 * ms}: 1, {limiter.Pass, time.Second + 10*ms}: 1,
		})
	})
}

// Of those who come while the store decides, the second waits for what is left of an interval
// and another interval, and not for two.
func TestWaitOfACrowdWithinAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTicking()
		far := storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
			defer time.Sleep(10 * ms)
			return s.Apply(ctx, ops, out)
		})
		l := newLimiter(t, far, waiting(t, "a", "10/1s burst=1", 150*ms))

		admit(l)
		// After 80 ms 20 of the interval are left, and an answer takes 10. The third turn, at 230
		// ms, is beyond the longest wait.
		time.Sleep(70 * ms)
		wantTally(t, admitAtOnce(l, 3, get()), map[arrival]int{
			{limiter.Pass, 30 * ms}: 1, {limiter.Pass, 130 * ms}: 1, {limiter.Refused, 10 * ms}: 1,
		})
	})
}

// A ban counts the refusals of requests that have to wait under another rule.
func TestWaitBehindOthersCountsForABan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hard := rule(t, "hard", "1/1h fixed-window")
		hard.Key, hard.Ban = byHeader, core.MustParseBan("2/1m for 10m max 15m")
		l := newLimiter(t, newTicking(), waiting(t, "smooth", "1/1s burst=1", time.Minute), hard)

		q := newQueue(t)
		// b waits for smooth, so that the requests of a which come later are behind it. hard
		// refuses them all the same, and two such refusals begin a ban.
		q.send("a", l, keyed("a"), 0)
		q.send("b", l, keyed("b"), 0)
		q.send("c", l, keyed("a"), 0)
		q.send("d", l, keyed("a"), 0)
		if d := l.Admit(keyed("a")).Result().Decisions()[1].Decision; !d.Banned {
			t.Errorf("%+v", d)
		}

		q.want("a pass at 0s", "b pass at 1s", "c refused at 0s", "d refused at 0s")
	})
}
