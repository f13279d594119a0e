package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// course is how the calls of a fake went.
type course struct {
	mu     sync.Mutex
	flying int
	most   int // at a time
	began  []time.Duration
	start  time.Time
}

// fly records a call and returns what records its end.
func (c *course) fly() (land func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flying++
	c.most = max(c.most, c.flying)
	c.began = append(c.began, time.Since(c.start))
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.flying--
	}
}

// reset forgets the calls until now.
func (c *course) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most, c.began, c.start = c.flying, nil, time.Now()
}

// crowded has callers ask n times each, and returns how long the decisions took, in order.
func crowded(t *testing.T, s *Store, rtt time.Duration, callers, n int) []time.Duration {
	took := make([]time.Duration, callers*n)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			// The callers begin spread over a round trip, as independent ones do.
			time.Sleep(rtt * time.Duration(i) / time.Duration(callers))
			key := fmt.Sprint("k", i)
			for k := range n {
				begin := time.Now()
				if _, err := takeOne(context.Background(), s, key); err != nil {
					t.Error(err)
				}
				took[i*n+k] = time.Since(begin)
			}
		})
	}

	all.Wait()
	synctest.Wait()
	slices.Sort(took)
	return took
}

// Once the connections are there, at least half of the decisions wait for a gap at most.
func TestCallsFollowTheRoundTrip(t *testing.T) {
	for _, row := range []struct {
		rtt, gap time.Duration
		most     int // calls in flight
	}{
		// Room for calls grows with the round trip, up to twelve; the gap is a tenth of it, at
		// least 0.25ms.
		{ms / 5, ms / 5, 2}, {ms / 2, ms / 4, 4}, {ms, ms / 4, 6}, {5 * ms, ms / 2, 12}, {20 * ms, 2 * ms, 12},
		{40 * ms, 4 * ms, 12},
	} {
		for _, callers := range []int{1, 10, 100, 1000} {
			if callers == 1000 && row.rtt != 20*ms {
				continue // many, and near the server more than full calls hold
			}
			t.Run(fmt.Sprintf("%s, %d callers", row.rtt, callers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var c course
					s := faked(t, &fake{wait: func(ctx context.Context, _ int) error {
						defer c.fly()()
						return after(ctx, row.rtt)
					}}, Options{Timeout: time.Second})

					// The first calls measure the distance; only those after it are judged.
					crowded(t, s, row.rtt, callers, 20)
					c.reset()
					took := crowded(t, s, row.rtt, callers, 10)

					if median := took[len(took)/2]; median > row.rtt+row.gap || c.most > row.most {
						t.Errorf("half of the decisions took %s, want at most %s; %d calls in flight, want at most %d",
							median, row.rtt+row.gap, c.most, row.most)
					}
				})
			})
		}
	}
}

// Two calls begin at once, and others 2 ms after the one before, a tenth of the round trip,
// with all callers that have come by then. The fourth of them fills a call of four steps,
// which begins at once.
func TestCallsBeginAGapApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c course

		f := &fake{wait: func(ctx context.Context, _ int) error {
			defer c.fly()()
			return after(ctx, 20*ms)
		}}
		s := faked(t, f, Options{Batch: 4})

		// The pace is known and the connections are ready from the start.
		s.connector.ready.Store(12)
		s.dispatcher.queue.whole.pace = pace{distance: distance{latest: 20 * ms}, maxCalls: 12}
		c.reset()

		var all sync.WaitGroup

		// Four at once, one that waits for its gap, four that fill a call, and two at the end.
		for i, at := range []time.Duration{0, 100, 200, 300, 2200, 3000, 3100, 3200, 3300, 9000, 9100} {
			all.Go(func() {
				time.Sleep(at * time.Microsecond)
				if _, err := takeOne(context.Background(), s, string(rune('a'+i))); err != nil {
					t.Error(err)
				}
			})
		}

		all.Wait()
		synctest.Wait()

		// a and b begin alone. c and d share the call at 2.1ms, a gap after the second. The call of
		// e to h begins when h has filled it.
		want := []time.Duration{0, 100, 2100, 3200, 5200, 9000, 11000}
		for i := range want {
			want[i] *= time.Microsecond
		}
		if !slices.Equal(c.began, want) {
			t.Errorf("calls began after %v, want %v", c.began, want)
		}

		if got, want := fmt.Sprint(f.seen()), "[[a] [b] [c d] [e f g h] [i] [j] [k]]"; got != want {
			t.Errorf("calls %s, want %s", got, want)
		}
		idle(t, s)
	})
}

// When the distance is gone, the first call of a batch shows it, and two are in flight.
func TestCallsFollowADistanceThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c course

		// The store believes in a server 20ms away, which is now near.
		s := faked(t, &fake{wait: func(ctx context.Context, _ int) error {
			defer c.fly()()
			return after(ctx, ms/10)
		}}, Options{})
		s.connector.ready.Store(12)
		s.dispatcher.queue.whole.pace = pace{distance: distance{latest: 20 * ms}, maxCalls: 12}

		crowded(t, s, 0, 100, 2)
		c.reset()

		crowded(t, s, 0, 100, 20)
		if c.most != maxBatches || s.dispatcher.queue.whole.pace.maxCalls != maxBatches {
			t.Errorf("%d calls in flight, and room for %d", c.most, s.dispatcher.queue.whole.pace.maxCalls)
		}
	})
}

// A server that works for 40 ms at each call, one after the other, is not far. Two calls
// that waited for nothing allow for two more, and those prove that it is slow.
func TestCallsToASlowServerStayFew(t *testing.T) {
	for _, callers := range []int{3, 10, 100} {
		synctest.Test(t, func(t *testing.T) {
			var c course

			// The server carries out one call at a time.
			work := make(chan struct{}, 1)
			s := faked(t, &fake{wait: func(ctx context.Context, _ int) error {
				defer c.fly()()
				work <- struct{}{}
				defer func() { <-work }()
				return after(ctx, 40*ms)
			}}, Options{Timeout: time.Second})

			// One caller shows the server as far away, the others that it only works slowly.
			crowded(t, s, 0, 1, 10)
			crowded(t, s, 0, callers, 100)

			if c.most > 2*maxBatches {
				t.Errorf("%d callers: %d calls in flight, want at most %d", callers, c.most, 2*maxBatches)
			}
		})
	}
}

// More calls than four are in flight once the client has connections for them.
func TestCallsWaitForConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c course
		f := &fake{wait: func(ctx context.Context, _ int) error {
			defer c.fly()()
			return after(ctx, 20*ms)
		}, connect: func(ctx context.Context) error { return after(ctx, 300*ms) }}

		s := faked(t, f, Options{Batch: 8, Timeout: time.Second})
		c.reset()
		crowded(t, s, 20*ms, 100, 40)

		// Until the connections are made, after 300ms, four calls must do.
		if n := flying(c.began, 20*ms, 300*ms); n != maxFull {
			t.Errorf("%d calls in flight before that", n)
		}

		if f.connects != 12 || c.most != 12 {
			t.Errorf("%d connections, %d calls in flight", f.connects, c.most)
		}
	})
}

// flying returns how many calls that took so long were in flight at most before the end.
func flying(began []time.Duration, took, end time.Duration) (most int) {
	for i, at := range began {
		n := 0
		for _, before := range began[:i+1] {
			if at < end && at-before < took {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func TestPaceFollowsTheShortestCalls(t *testing.T) {
	now := time.Unix(0, 0)
	var p pace

	// took is how long a call took among so many; room and more are what the pace allows then.
	for i, row := range []struct {
		took         time.Duration
		among, ready int
		room, more   int
	}{
		{20 * ms, 1, 4, 2, 0},   // one call says nothing about two
		{20 * ms, 2, 4, 4, 12},  // there are connections for four
		{20 * ms, 4, 12, 8, 0},  //
		{20 * ms, 7, 12, 8, 0},  // seven say nothing about eight
		{25 * ms, 8, 12, 12, 0}, // a quarter more is no wait
		{26 * ms, 12, 12, 6, 0}, //
		{40 * ms, 12, 12, 6, 0}, // twelve say nothing about six
		{40 * ms, 5, 12, 3, 0},  //
		{ms / 10, 2, 12, 2, 0},  // the distance is gone
		{20 * ms, 2, 12, 2, 0},  // it is not believed to be back
	} {
		more := p.record(row.took, row.among, row.ready, now)
		if p.maxCalls != row.room || more != row.more {
			t.Errorf("call %d: room for %d, more %d; want %d, %d", i, p.maxCalls, more, row.room, row.more)
		}
	}
}

// The shortest call counts for the rest of its second and the next, and for sixteen calls
// at least.
func TestPaceForgets(t *testing.T) {
	for _, row := range []struct {
		every time.Duration
		calls int // that a short one counts
	}{
		{10 * ms, 200}, {20 * ms, 100}, {100 * ms, 32}, {500 * ms, 32},
	} {
		now := time.Unix(0, 0)
		var p pace
		p.remember(ms, now)

		// Long calls must not make the short one forgotten before its time.
		n := 0
		for ; p.rtt() == ms; n++ {
			now = now.Add(row.every)
			p.remember(20*ms, now)
		}

		if n != row.calls {
			t.Errorf("a call every %v: %d calls, want %d", row.every, n, row.calls)
		}
	}
}

// More full calls may be in flight the farther the server is, as far as the client has connections
// for them.
func TestFullCallsByDistance(t *testing.T) {
	for _, c := range []struct {
		rtt         time.Duration
		among       int
		ready, full int
		more        int
	}{
		{rtt: 200 * time.Microsecond, ready: 100, full: 4},
		{rtt: 499 * time.Microsecond, ready: 100, full: 4},
		{rtt: 500 * time.Microsecond, ready: 100, full: 5},
		{rtt: ms, ready: 100, full: 6},
		{rtt: 2 * ms, ready: 100, full: 8},
		{rtt: 40 * ms, ready: 100, full: 8},

		// Connections are made once the calls that may be in flight are.
		{rtt: 400 * time.Microsecond, among: 4, ready: 4, full: 4},
		{rtt: 2 * ms, ready: 4, among: 1, full: 4},
		{rtt: 2 * ms, ready: 4, among: 3, full: 4, more: 10},
		{rtt: 700 * time.Microsecond, ready: 4, among: 4, full: 4, more: 5},
		{rtt: 2 * ms, ready: 6, full: 6},
	} {
		var p pace
		more := p.record(c.rtt, c.among, c.ready, time.Now())
		if p.full() != c.full || more != c.more {
			t.Errorf("%v: %d full calls, connections for %d", c, p.full(), more)
		}
	}
}
