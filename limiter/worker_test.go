package limiter_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// wantWait fails unless err is a WaitError that wraps why, with the text.
func wantWait(t *testing.T, err, why error, retry time.Duration, text string, rules ...string) {
	t.Helper()
	var e *limiter.WaitError
	if !errors.As(err, &e) || !errors.Is(err, why) {
		t.Fatalf("%v, want a WaitError about %v", err, why)
	}

	if e.RetryAfter != retry || !slices.Equal(e.Rules, rules) || err.Error() != text {
		t.Errorf("retry after %s, rules %q, %q", e.RetryAfter, e.Rules, err)
	}
	// A program tells the reasons apart with errors.Is, so one must not be another too.
	for _, other := range []error{limiter.ErrLimited, limiter.ErrQueueFull, limiter.ErrClosed, limiter.ErrUndecided} {
		if other != why && errors.Is(err, other) {
			t.Errorf("%v wraps %v too", err, other)
		}
	}
}

func TestWaitTakesEveryUnitAtItsInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), rule(t, "window", "2/2s fixed-window"), rule(t, "smooth", "2/6s burst=2"),
			withOnLimit(rule(t, "dark", "1/30s"), limiter.Shadow))

		start := time.Now()
		// Two units need 6 s under smooth, and 2 s under the window: the longer wait counts.
		for i, want := range []time.Duration{0, 6 * time.Second, 12 * time.Second} {
			if err := l.Wait(t.Context(), "k", 2); err != nil || time.Since(start) != want {
				t.Errorf("turn %d: %v after %s, want %s", i, err, time.Since(start), want)
			}
		}
		wantLeft(t, l, "k", 0, 0, 1) // the window was charged when the slot was booked, just before
	})
}

func TestWaitErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), rule(t, "a", "2/1h"), rule(t, "b", "9/1h fixed-window"))
		// The first takes both units of a. One comes back each half hour.
		if err := l.Wait(t.Context(), "k", 2); err != nil {
			t.Fatal(err)
		}

		wantWait(t, l.Wait(t.Context(), "k", 3), limiter.ErrLimited, core.Never,
			"headgate: over the limit (a); the units never fit", "a")

		// The deadline is known before: the request does not wait for it.
		soon, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		wantWait(t, l.Wait(soon, "k", 1), limiter.ErrLimited, 30*time.Minute,
			"headgate: over the limit (a); retry after 30m", "a")

		// What is unforeseen ends the wait with its cause, and with the rule that it waited for; a
		// context that has ended begins no wait.
		gone := errors.New("gone")
		ctx, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { leave(gone) })
		wantWait(t, l.Wait(ctx, "k", 1), gone, 0, "gone (a)", "a")
		wantWait(t, l.Wait(ctx, "k", 1), gone, 0, "gone")

		time.AfterFunc(time.Second, func() { _ = l.Close() })
		wantWait(t, l.Wait(t.Context(), "k", 1), limiter.ErrClosed, 0, "headgate: the limiter is closed (a)", "a")
		// b was charged by the first call only: no other has had its turn.
		wantLeft(t, l, "k", 0, 7)
	})
}

func TestWaitBoundsTheWaiters(t *testing.T) {
	for _, text := range []string{"1/1m", "1/1m fixed-window"} {
		synctest.Test(t, func(t *testing.T) {
			l := configured(t, limiter.Config{Store: newTicking(), MaxWaitersPerKey: 1,
				Rules: []limiter.Rule{rule(t, "a", text)}})
			if err := l.Wait(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}

			// One waits and fills the queue of the key.
			done := make(chan error, 1)
			go func() { done <- l.Wait(t.Context(), "k", 1) }()
			synctest.Wait()
			err := l.Wait(t.Context(), "k", 1)
			var e *limiter.WaitError
			if !errors.Is(err, limiter.ErrQueueFull) || !errors.As(err, &e) || e.RetryAfter <= 0 ||
				!slices.Equal(e.Rules, []string{"a"}) {
				t.Errorf("%s: %v", text, err)
			}

			if err := <-done; err != nil {
				t.Errorf("%s: %v", text, err)
			}

			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if err := l.Wait(t.Context(), "k", 1); !errors.Is(err, limiter.ErrClosed) {
				t.Errorf("%s: %v after Close", text, err)
			}
		})
	}
}

func TestWaitReturnsStoreFailuresAsErrors(t *testing.T) {
	for _, failure := range []limiter.FailureMode{limiter.FailOpen, limiter.FailClosed} {
		l := configured(t, limiter.Config{Store: brokenStore(func() error { return errDown }),
			Rules: []limiter.Rule{rule(t, "a", "5/1s")}, OnStoreError: failure})

		err := l.Wait(t.Context(), "k", 1)
		wantWait(t, err, limiter.ErrUndecided, 0, "headgate: not every rule was decided: down")
		if !errors.Is(err, errDown) {
			t.Error(err)
		}

		if r, err := l.Reserve(t.Context(), "k", 1); r != nil || !errors.Is(err, limiter.ErrUndecided) ||
			!errors.Is(err, errDown) {
			t.Errorf("Reserve: %v, %v", r, err)
		}
	}
}

func TestWaitUndecidedRuleIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := rule(t, "broken", "9/1h")
		broken.Override = func(context.Context, string) (core.Limit, bool, error) { panic("o") }
		l := newLimiter(t, newTicking(), broken, rule(t, "a", "1/1h"))
		if r, err := l.Reserve(t.Context(), "k", 1); r != nil || !errors.Is(err, limiter.ErrUndecided) {
			t.Errorf("Reserve: %v, %v", r, err)
		}

		start := time.Now() // Reserve has given its unit back, so the next call need not wait
		wantWait(t, l.Wait(t.Context(), "k", 1), limiter.ErrUndecided, 0,
			`headgate: not every rule was decided: rule 0 "broken": panic: "o"`)
		if time.Since(start) != 0 {
			t.Errorf("waited %s", time.Since(start))
		}

		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Wait(soon, "k", 1); !errors.Is(err, limiter.ErrLimited) || !errors.Is(err, limiter.ErrUndecided) {
			t.Errorf("a refusal of which a part was not decided: %v", err)
		}
	})
}

func TestWaitAndReserveRefuseLeases(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "a", "5/1h"), rule(t, "b", "2 concurrent ttl=1m"))
	for _, n := range []int64{1, -1} {
		if err := l.Wait(t.Context(), "k", n); !errors.Is(err, core.ErrOp) {
			t.Errorf("Wait(%d): %v", n, err)
		}
		if r, err := l.Reserve(t.Context(), "k", n); r != nil || !errors.Is(err, core.ErrOp) {
			t.Errorf("Reserve(%d): %v, %v", n, r, err)
		}
	}
	wantLeft(t, l, "k", 5, 2)
}

func TestReserveBooksASlotThatCanBeCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), rule(t, "fast", "2/1s"), rule(t, "slow", "2/10s burst=2"),
			withOnLimit(rule(t, "dark", "1/1h fixed-window"), limiter.Shadow))

		reserve := func(n int64, want time.Duration) *limiter.Reservation {
			t.Helper()
			r, err := l.Reserve(t.Context(), "k", n)
			if err != nil || r.Delay() != want {
				t.Fatalf("%v, %v", r.Delay(), err)
			}
			return r
		}

		reserve(2, 0)
		// The slower limit gives a unit each 5 s.
		reserve(1, 5*time.Second)
		last := reserve(2, 15*time.Second)

		// The delay is that until the booked instant, so it shrinks.
		time.Sleep(time.Second)
		if last.Delay() != 14*time.Second {
			t.Errorf("the delay is %s a second later", last.Delay())
		}

		for range 2 {
			// Twice: a reservation that is canceled once gives nothing back again.
			if err := last.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
		}

		again := reserve(2, 14*time.Second)
		time.Sleep(14 * time.Second)
		if again.Delay() != 0 {
			t.Errorf("the delay is %s when it is over", again.Delay())
		}

		wantLeft(t, l, "k", 2, 0, 0)
	})
}

func TestReserveRefusesWhatItCannotBook(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "smooth", "1/30m"))
	// Units come each half hour, and an hour ahead may be booked: now, 30 and 60 minutes.
	for range 3 {
		if _, err := l.Reserve(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
	}

	_, err := l.Reserve(t.Context(), "k", 1)
	wantWait(t, err, limiter.ErrLimited, 90*time.Minute, "headgate: over the limit (smooth); retry after 1h30m",
		"smooth")
	_, err = l.Reserve(t.Context(), "k", 2)
	wantWait(t, err, limiter.ErrLimited, core.Never, "headgate: over the limit (smooth); the units never fit", "smooth")

	for _, text := range []string{"9/1h fixed-window", "9/1h sliding-log", "9/1h sliding-window", "9/1h token-bucket"} {
		// A rule that books nothing cannot promise an instant. The one that can must not be charged
		// either.
		l := newLimiter(t, newStore(), rule(t, "smooth", "5/1h"), rule(t, "other", text))
		if r, err := l.Reserve(t.Context(), "k", 1); r != nil || !errors.Is(err, core.ErrOp) {
			t.Errorf("%s: %v, %v", text, r, err)
		}
		wantLeft(t, l, "k", 5, 9)
	}

	var none *limiter.Reservation
	if err := none.Cancel(t.Context()); err != nil || none.Delay() != 0 {
		t.Errorf("no reservation: %s, %v", none.Delay(), err)
	}
}

func TestTakeUpToTakesWhatEveryRuleHasLeft(t *testing.T) {
	now := epoch
	s := newStore()
	s.now = func() time.Time { return now }
	l := newLimiter(t, s, rule(t, "a", "10/10s"), waiting(t, "b", "7/1m", time.Minute),
		withOnLimit(rule(t, "dim", "9/1h"), limiter.Degrade), withOnLimit(rule(t, "dark", "2/1h"), limiter.Shadow))

	for _, step := range []struct {
		later     time.Duration
		max, want int64
		left      []int64
	}{
		// The least that a rule which refuses has left is taken. A soft rule is charged as much or
		// nothing.
		{0, 0, 0, []int64{10, 7, 9, 2}},
		{0, 4, 4, []int64{6, 3, 5, 2}},
		{0, 4, 3, []int64{3, 0, 2, 2}},
		{0, 4, 0, []int64{3, 0, 2, 2}},
		// a is fresh after 10 s; b has a minute for seven units, so two in 20 s.
		{20 * time.Second, 9, 2, []int64{8, 0, 0, 0}},
		{time.Minute, 1 << 40, 7, []int64{3, 0, 0, 0}},
	} {
		now = now.Add(step.later)
		if n, err := l.TakeUpTo(t.Context(), "k", step.max); err != nil || n != step.want {
			t.Errorf("up to %d: %d, %v, want %d", step.max, n, err, step.want)
		}
		wantLeft(t, l, "k", step.left...)
	}
}

// A request that follows under the same terms takes its whole cost or nothing.
func TestTakeUpToLeavesNoTraceInTheNextRequest(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "a", "5/1h"))
	// The requests of "k" use the memory of those that may take a part.
	for range 10 {
		if n, err := l.TakeUpTo(t.Context(), "other", 1); err != nil || n > 1 {
			t.Fatal(n, err)
		}
		if d, err := l.Allow(t.Context(), "k", 6); err != nil || d.Allowed || d.Taken != 0 {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	wantLeft(t, l, "k", 5)
}

func TestTakeUpToWithoutARuleThatRefusesTakesAll(t *testing.T) {
	for name, rules := range map[string][]limiter.Rule{
		"none":   nil,
		"shadow": {withOnLimit(rule(t, "dark", "2/1h"), limiter.Shadow)},
	} {
		// Nothing bounds the units, and no warning says that they never fit: a rule in shadow
		// refuses nothing.
		var j journal
		l := configured(t, limiter.Config{Store: newStore(), Rules: rules, Logger: j.logger()})
		if n, err := l.TakeUpTo(t.Context(), "k", 9); err != nil || n != 9 || j.codes() != "" {
			t.Errorf("%s: %d, %v, %s", name, n, err, &j)
		}
	}
}

func TestTakeUpToReturnsErrorsAndFollowsConfig(t *testing.T) {
	for failure, want := range map[limiter.FailureMode]int64{limiter.FailOpen: 3, limiter.FailClosed: 0} {
		l := configured(t, limiter.Config{Store: brokenStore(func() error { return errDown }),
			Rules: []limiter.Rule{rule(t, "a", "5/1s")}, OnStoreError: failure})
		if n, err := l.TakeUpTo(t.Context(), "k", 3); n != want || !errors.Is(err, errDown) ||
			!errors.Is(err, limiter.ErrUndecided) {
			t.Errorf("%s: %d, %v", failure, n, err)
		}
	}

	broken := rule(t, "broken", "9/1h")
	broken.Override = func(context.Context, string) (core.Limit, bool, error) { panic("o") }
	l := newLimiter(t, newStore(), broken, rule(t, "a", "2/1h"))
	for _, want := range []int64{2, 0} {
		if n, err := l.TakeUpTo(t.Context(), "k", 3); n != want || !errors.Is(err, limiter.ErrUndecided) {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}

	l = newLimiter(t, newStore(), rule(t, "a", "5/1h"), rule(t, "b", "2 concurrent ttl=1m"))
	for _, max := range []int64{1, -1} {
		if n, err := l.TakeUpTo(t.Context(), "k", max); n != 0 || !errors.Is(err, core.ErrOp) {
			t.Errorf("up to %d: %d, %v", max, n, err)
		}
	}
	wantLeft(t, l, "k", 5, 2)
}

func TestTakeUpToCountsEveryUnitOnceAmongMany(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "a", "1000/1h"), rule(t, "b", "997/1h fixed-window"))
	var all sync.WaitGroup
	var sum atomic.Int64
	// The units asked for are more than enough: 50 callers ask 20 times for one to three.
	for i := range int64(50) {
		all.Go(func() {
			for range 20 {
				n, err := l.TakeUpTo(t.Context(), "k", 1+i%3)
				if err != nil {
					t.Error(err)
				}
				sum.Add(n)
			}
		})
	}

	all.Wait()
	// The smaller limit is used to the last unit: none is lost between the rules.
	if sum.Load() != 997 {
		t.Errorf("%d units were taken, want 997", sum.Load())
	}
}
