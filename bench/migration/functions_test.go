package migration

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// These tests compare headgate with its peers in the functions that wait, book or take a part, as
// docs/migrating.md and docs/peers.md say.

// open returns a limiter with one limit, whose clock is that of the bubble.
func open(limit string) *limiter.Limiter {
	return limiter.MustNew(limiter.Config{Rules: []limiter.Rule{{Limit: core.MustParseLimit(limit)}},
		Logger: slog.New(slog.DiscardHandler)})
}

// turn says when a call returned, and whether the units were taken.
type turn struct {
	at    time.Duration
	taken bool
}

// turns makes the same calls of a function that waits, one after the other, in a
// bubble of their own.
func turns(t *testing.T, begin func() func(ctx context.Context, n int) error) (list []turn) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		wait, start := begin(), time.Now()
		// Calls that get their units at once, wait, have no time to, and come late after a pause.
		for _, call := range []struct {
			n       int
			maxWait time.Duration // until the deadline
			pause   time.Duration
		}{
			{1, time.Hour, 0}, {2, time.Hour, 0}, {1, 400 * time.Millisecond, 0},
			{1, 600 * time.Millisecond, 0}, {3, time.Hour, 0},
			{2, time.Minute, 250 * time.Millisecond}, {1, time.Second, 10 * time.Second},
			{1, time.Nanosecond, 0}, {2, 2 * time.Second, 0},
		} {
			time.Sleep(call.pause)
			ctx, cancel := context.WithTimeout(t.Context(), call.maxWait)
			err := wait(ctx, call.n)
			cancel()
			list = append(list, turn{time.Since(start), err == nil})
		}
	})
	return list
}

func TestWaitReturnsAtTheSameInstants(t *testing.T) {
	theirs := turns(t, func() func(context.Context, int) error { return rate.NewLimiter(2, 2).WaitN })
	ours := turns(t, func() func(context.Context, int) error {
		l := open("2/1s")
		return func(ctx context.Context, n int) error { return l.Wait(ctx, "k", int64(n)) }
	})
	if !slices.Equal(theirs, ours) || slices.IndexFunc(ours, func(w turn) bool { return !w.taken }) < 0 {
		t.Errorf("x/time/rate %v\nheadgate %v", theirs, ours)
	}
}

// reservation is a reservation of either side.
type reservation struct {
	delay  func() time.Duration
	cancel func()
}

func theirReservations(t *testing.T) func(n int) reservation {
	l := rate.NewLimiter(2, 2)
	return func(n int) reservation {
		r := l.ReserveN(time.Now(), n)
		if !r.OK() {
			t.Errorf("%d units are not reserved", n)
		}
		return reservation{r.Delay, r.Cancel}
	}
}

func ourReservations(t *testing.T) func(n int) reservation {
	l := open("2/1s")
	return func(n int) reservation {
		r, err := l.Reserve(t.Context(), "k", int64(n))
		if err != nil {
			t.Error(err)
		}
		return reservation{r.Delay, func() {
			if err := r.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
		}}
	}
}

// delays calls use in a bubble and returns the delay of each reservation.
func delays(t *testing.T, begin func(*testing.T) func(n int) reservation,
	use func(reserve func(n int) reservation)) (list []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		reserve := begin(t)
		use(func(n int) reservation {
			r := reserve(n)
			list = append(list, r.delay().Round(time.Microsecond))
			return r
		})
	})
	return list
}

func TestReserveBooksTheSameSlots(t *testing.T) {
	use := func(reserve func(n int) reservation) {
		// The last slot is given back before its instant, and the next one takes its place.
		reserve(2)
		reserve(1)
		last := reserve(2)
		time.Sleep(100 * time.Millisecond)
		last.cancel()
		reserve(1)

		// A pause brings all units back, and a slot that is cancelled at once leaves them.
		time.Sleep(2 * time.Second)
		reserve(2).cancel()
		reserve(1)
		reserve(1)
		reserve(1)
	}

	theirs, ours := delays(t, theirReservations, use), delays(t, ourReservations, use)
	if !slices.Equal(theirs, ours) || slices.Max(ours) != 1500*time.Millisecond {
		t.Errorf("x/time/rate %v\nheadgate %v", theirs, ours)
	}
}

func TestCancelTwice(t *testing.T) {
	use := func(reserve func(n int) reservation) {
		reserve(2)
		last := reserve(2)
		last.cancel()
		last.cancel()
		reserve(1)
	}

	// x/time/rate gives the units back with each of the calls, and headgate once.
	if got := delays(t, theirReservations, use); !slices.Equal(got, []time.Duration{0, time.Second, 0}) {
		t.Errorf("x/time/rate %v", got)
	}
	if got := delays(t, ourReservations, use); !slices.Equal(got, []time.Duration{0, time.Second, time.Second / 2}) {
		t.Errorf("headgate %v", got)
	}
}

func TestCancelOfASlotBeforeOthers(t *testing.T) {
	use := func(reserve func(n int) reservation) {
		reserve(2)
		first := reserve(2)
		reserve(1)
		first.cancel()
		reserve(1)
	}

	// The next request comes at the instant of the last one in x/time/rate, and behind it in
	// headgate.
	ms := time.Millisecond
	if got := delays(t, theirReservations, use); !slices.Equal(got,
		[]time.Duration{0, 1000 * ms, 1500 * ms, 1500 * ms}) {
		t.Errorf("x/time/rate %v", got)
	}
	if got := delays(t, ourReservations, use); !slices.Equal(got, []time.Duration{0, 1000 * ms, 1500 * ms, 2000 * ms}) {
		t.Errorf("headgate %v", got)
	}
}

// parts takes up to n units at each instant, and returns how many were taken.
func parts(t *testing.T, at []time.Duration, n int) (theirs, ours []int64) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: redistest.Addr(t)})
	defer c.Close()

	clock := &redisClock{Client: c}
	peer, key := redis_rate.NewLimiter(clock), redistest.Prefix(t)
	l := limiter.MustNew(limiter.Config{
		Store: memstore.MustNew(memstore.Options{Clock: func() int64 { return clock.now.Microseconds() }}),
		Rules: []limiter.Rule{{Limit: core.MustParseLimit("5/1s")}},
	})

	for _, at := range at {
		clock.now = 1_800_000_000*time.Second + at
		r, err := peer.AllowAtMost(t.Context(), key, redis_rate.PerSecond(5), n)
		if err != nil {
			t.Fatal(err)
		}

		taken, err := l.TakeUpTo(t.Context(), "k", int64(n))
		if err != nil {
			t.Fatal(err)
		}

		theirs, ours = append(theirs, int64(r.Allowed)), append(ours, taken)
	}
	return theirs, ours
}

func TestAllowAtMostIsTakeUpTo(t *testing.T) {
	ms := time.Millisecond
	theirs, ours := parts(t, []time.Duration{0, ms, 2 * ms, 1500 * ms, 1501 * ms, 1502 * ms,
		4 * time.Second, 4201 * ms, 4202 * ms}, 3)
	if want := []int64{3, 2, 0, 3, 2, 0, 3, 3, 0}; !slices.Equal(theirs, want) || !slices.Equal(ours, want) {
		t.Errorf("redis_rate %v\nheadgate %v\nwant %v", theirs, ours, want)
	}
	// One unit and a half are back after 300 ms.
	theirs, ours = parts(t, []time.Duration{0, 300 * ms, 401 * ms, 501 * ms}, 5)
	if !slices.Equal(theirs, []int64{5, 1, 0, 1}) || !slices.Equal(ours, []int64{5, 1, 1, 0}) {
		t.Errorf("redis_rate %v\nheadgate %v", theirs, ours)
	}
}
