package failover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

// callError is the error of all steps that shared a call.
type callError struct {
	number uint64
	error
}

func (e callError) Call() uint64  { return e.number }
func (e callError) Unwrap() error { return e.error }

// remote is a primary that asks a server.
type remote struct {
	*fake
	max time.Duration
}

func (r remote) Report() events.Report { return events.Report{MaxCall: r.max} }

func TestOverloadIsNoFailureOfThePrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		defer s.Close()

		// A client that has too much to do says nothing about its server: each step is decided
		// here, and none is counted.
		busy := fmt.Errorf("%w: 12 steps wait", core.ErrOverload)
		f.be(func(context.Context) error { return busy })
		for range 1000 {
			if d := one(t, s, take(t, "k", "1000/1s", 1)); !d.Fallback {
				t.Fatalf("%+v", d)
			}
		}

		if got := s.Stats(); got.State != Closed || got.Local != 1000 || s.primary.breaker.score.Load() != 0 {
			t.Errorf("%+v", got)
		}

		// Callers can tell the two apart by the cause.
		if err := s.Cause(); !errors.Is(err, core.ErrFallback) || !errors.Is(err, core.ErrOverload) {
			t.Errorf("%v", err)
		}
	})
}

// Each row is the failures of steps as the numbers of their calls, 0 for a call without a
// number, and how many of the steps the breaker needs to open.
func TestBreakerCountsCallsAndNotTheirSteps(t *testing.T) {
	// One connection that breaks fails every step that waits on it, and is one failure.
	rows := map[string]struct {
		calls []uint64
		opens int // after so many steps; 0: never
	}{
		"a hundred steps of one call":   {make100(7), 0},
		"five calls of one step":        {[]uint64{1, 2, 3, 4, 5}, 5},
		"five calls of two steps":       {[]uint64{1, 1, 2, 2, 3, 3, 4, 4, 5, 5}, 9},
		"two calls, their steps mixed":  {[]uint64{1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2}, 0},
		"five calls, their steps mixed": {[]uint64{9, 8, 9, 8, 7, 9, 8, 7, 6, 5}, 10},
		"calls without a number":        {[]uint64{0, 0, 0, 0, 0}, 5},
	}

	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, Options{Fallback: memory()})
				defer s.Close()

				// Steps of one call that alternate with those of another must not count again each
				// time.
				opened := 0
				for i, n := range row.calls {
					f.be(func(context.Context) error {
						if n == 0 {
							return errDown
						}
						return fmt.Errorf("late: %w", callError{n, errDown})
					})

					one(t, s, take(t, "k", "1000/1s", 1))
					if s.State() == Open && opened == 0 {
						opened = i + 1
					}
				}

				if opened != row.opens {
					t.Errorf("open after %d steps, want %d", opened, row.opens)
				}
			})
		})
	}
}

func make100(n uint64) []uint64 {
	list := make([]uint64, 100)
	for i := range list {
		list[i] = n
	}
	return list
}

// A call of a hundred steps that succeeds makes up for one that fails, not for a hundred.
func TestBreakerCountsCallsThatSucceed(t *testing.T) {
	rows := map[string]State{"xx.xx.xx.xx": Open, "x.x.x.x.x.x.x.x.x.x.x.": Closed, "x..x..xxxx..": Closed}
	for calls, want := range rows {
		t.Run(calls, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, Options{Fallback: memory()})
				defer s.Close()

				// A call of a hundred steps is one failure or one success, so a row reads as that
				// of single calls.
				for n, c := range calls {
					time.Sleep(ms)
					if f.rise(); c == 'x' {
						f.be(func(context.Context) error { return callError{uint64(n + 1), errDown} })
					}
					for range 100 {
						one(t, s, take(t, "k", "100000/1s", 1))
					}
				}

				if got := s.State(); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			})
		})
	}
}

// What ends a silence: a single probe, which is sent at once. A primary that is silent again
// within ten seconds is trusted after four.
func TestSilenceOpensAtOnceAndOneProbeEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		defer s.Close()

		// fail has one step fail; what follows it is the health of the primary until it is changed.
		fail := func(health error) {
			f.be(func(context.Context) error { return health })
			f.seen()
			one(t, s, take(t, "k", "1000/1s", 1))
		}

		silence := fmt.Errorf("50ms: %w", core.ErrSilent)

		// closes checks when the breaker closes again, and the instants of the probes until then.
		closes := func(what string, within time.Duration, probes ...time.Duration) {
			t.Helper()
			start := time.Now()
			if s.State() != Open {
				t.Fatalf("%s: closed", what)
			}

			synctest.Wait()

			// From here on the primary is well.
			f.be(after(0, nil))
			for s.State() == Open {
				time.Sleep(ms)
				synctest.Wait()
			}

			if took := time.Since(start); took != within {
				t.Errorf("%s: closed after %s, want %s", what, took, within)
			}

			var at []time.Duration
			for _, c := range f.seen() {
				if c.ops[0].Rule == probeRule {
					at = append(at, c.at-start.Sub(f.start))
				}
			}

			if fmt.Sprint(at) != fmt.Sprint(probes) {
				t.Errorf("%s: probes after %v, want %v", what, at, probes)
			}
		}

		// The probe that is sent at once still meets the silence, and the next one 100 ms later
		// ends it.
		fail(silence) // the probe at once meets the silence
		closes("the first", 100*ms, 0, 100*ms)

		// A silence just within ten seconds of the return needs four probes.
		time.Sleep(trustAgain - 100*ms)
		fail(silence)
		closes("again within ten seconds", 400*ms, 0, 100*ms, 200*ms, 300*ms, 400*ms)

		// A millisecond after them, one is enough again.
		time.Sleep(trustAgain + ms)
		fail(silence)
		closes("much later", 100*ms, 0, 100*ms)

		// Other failures never have the short way.
		fail(errDown) // the first failure after a return opens it
		closes("a failure of another kind", 400*ms, 100*ms, 200*ms, 300*ms, 400*ms)
	})
}

// The server is well again when the first probe comes.
func TestSilenceThatIsOverCostsOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		defer s.Close()

		quiet := true

		// Only the first call meets the silence.
		f.be(func(context.Context) error {
			if quiet {
				quiet = false
				return core.ErrSilent
			}
			return nil
		})

		one(t, s, take(t, "k", "1000/1s", 1))

		// The probe was sent at once, so no later step is decided by the fallback.
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if d := one(t, s, take(t, "k", "1000/1s", 1)); d.Fallback || s.State() != Closed {
			t.Errorf("%+v", d)
		}
	})
}

// Calls of a store that bounds them itself are not timed.
func TestSlowCallsCountUnlessThePrimaryBoundsThem(t *testing.T) {
	// slow is what counts as a failure, and patience how long a probe may take.
	rows := []struct{ max, slow, wantSlow, wantPatience time.Duration }{
		{0, 0, DefaultSlow, DefaultSlow}, {50 * ms, 0, 0, 100 * ms}, {51 * ms, 0, 0, 102 * ms},
		{time.Second, 0, 0, 2 * time.Second},
		{time.Second, 200 * ms, 200 * ms, time.Second},
	}

	for _, row := range rows {
		s := over(t, remote{newFake(), row.max}, Options{Slow: row.slow})
		if s.primary.slow != row.wantSlow || s.primary.patience != row.wantPatience {
			t.Errorf("MaxCall %s, Slow %s: %s and %s", row.max, row.slow, s.primary.slow, s.primary.patience)
		}
	}

	if s := over(t, newFake(), Options{}); s.primary.slow != DefaultSlow || s.primary.patience != DefaultSlow {
		t.Errorf("%s, %s", s.primary.slow, s.primary.patience)
	}
}

// A probe of a store that waits for a second may take almost as long.
func TestProbeMayTakeTheLongestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, remote{f, time.Second}, Options{Slow: 100 * ms})
		defer s.Close()
		openNow(t, s, f)

		// Each probe takes 999 ms and the next follows 100 ms after it, so four end after 4396 ms.
		f.be(after(999*ms, nil))
		time.Sleep(4*1099*ms - 1)
		synctest.Wait()
		if s.State() != Open {
			t.Error("closed early")
		}

		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if s.State() != Closed {
			t.Error("open after four probes of a second")
		}
	})
}

// A process is stopped for ten seconds with a thousand calls in flight. Its clock goes on, and
// everything that was due happens at once when it goes on.
func TestStoppedProcessDoesNotBlameThePrimary(t *testing.T) {
	for _, before := range []int{0, 1} { // slow calls shortly before
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, Options{Fallback: memory()})
				defer s.Close()

				// A slow call before is the one with which the store begins to watch its own
				// lateness.
				f.be(after(150*ms, nil))
				for range before {
					one(t, s, take(t, "k", "100000/1s", 1))
				}

				// The timer of the process stands still with it.
				s.primary.punctuality.stop()
				f.be(after(10*time.Second, nil))

				// All calls seem to have taken ten seconds, as long as the process stood still.
				var calls sync.WaitGroup
				for range 1000 {
					calls.Go(func() {
						if d := one(t, s, take(t, "k", "100000/1s", 1)); d.Fallback {
							t.Error("decided by the fallback")
						}
					})
				}

				calls.Wait()
				if s.State() != Closed || s.primary.breaker.score.Load() != 0 {
					t.Errorf("%s, score %d", s.State(), s.primary.breaker.score.Load())
				}
			})
		})
	}
}

// stop has the timer fire no more, as that of a process that is stopped.
func (p *punctuality) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
}

// Rows are calls by when they began and how long they took, after a first slow call that
// ended at 0, and whether this process was punctual in that time. The timer fires late once,
// at 1 s.
func TestPunctualityOfEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p punctuality
		defer p.close()
		zero := time.Now()

		// Nothing was watched before the first slow call, so it cannot be judged.
		if p.wasPunctual(zero.Add(-200*ms), 200*ms) {
			t.Error("the first slow call counts")
		}

		// The tick at one second is made to look late.
		time.Sleep(time.Second - tick/2)
		p.mu.Lock()
		p.due = p.due.Add(-tick - 1) // as if the one to come were late
		p.mu.Unlock()
		time.Sleep(tick / 2)
		synctest.Wait()
		late := time.Now()
		time.Sleep(time.Second)

		// Calls that began before the late tick may have been late by this process; those after it
		// were not.
		for _, row := range []struct {
			start time.Time
			want  bool
		}{
			{zero.Add(-1), false}, {zero, false}, {late.Add(-1), false}, {late, true}, {late.Add(800 * ms), true},
		} {
			if got := p.wasPunctual(row.start, time.Since(row.start)); got != row.want {
				t.Errorf("a call that began at %s: %t", row.start.Sub(zero), got)
			}
		}

		// After a quiet time the watch has ended, and the next slow call begins it again.
		time.Sleep(watched + 2*tick)
		if p.wasPunctual(time.Now().Add(-150*ms), 150*ms) {
			t.Error("the first slow call in a while counts")
		}
	})
}

func TestErrorsOfALaterCallCountAgain(t *testing.T) {
	b := &breaker{max: 3}
	for _, n := range []uint64{1, 65, 1} { // 1 was displaced by 65
		b.fail(0, callError{n, errDown})
	}
	if got := b.score.Load(); got != 3 {
		t.Errorf("score %d", got)
	}
	if b.fail(2, core.ErrSilent) || !b.fail(0, errors.Join(core.ErrSilent)) {
		t.Error("a silence counts in its own generation alone")
	}
}
