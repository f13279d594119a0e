package failover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

const ms = time.Millisecond

func TestNewNamesEveryMistake(t *testing.T) {
	_, err := New(nil, Options{Failures: -1, Slow: time.Nanosecond, ProbeInterval: time.Hour})
	want := "failover: the primary is nil\nfailover: Failures -1 is not within 0 to 1000\n" +
		"failover: Slow 1ns is neither 0 nor within 1ms to 1m0s\nfailover: ProbeInterval 1h0m0s is neither 0 nor within 1ms to 1m0s"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestMustNewPanicsWithTheError(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || err.Error() != "failover: the primary is nil" {
			t.Errorf("panic %v", err)
		}
	}()
	MustNew(nil, Options{})
}

// Each row is the results of calls, "x" for a failure and "." for a success,
// until the breaker opens.
func TestBreakerOpensAtFiveFailures(t *testing.T) {
	// A failure counts one, and a success takes one off; at five the breaker opens.
	rows := map[string]bool{
		"xxxxx": true, "xxxx": false, "xxxx.": false, "xxxx.x": false, "xxxx.xx": true,
		"....xxxxx": true, "x.x.x.x.x.x.x.x.x.": false, "xx.xx.xx.xx": true, "xx.xx.xx.x.": false,
	}

	for calls, want := range rows {
		t.Run(calls, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, Options{})

				for i, c := range calls {
					if s.State() != Closed {
						t.Fatalf("open after %d calls", i)
					}

					if f.rise(); c == 'x' {
						f.fall()
					}
					if _, err := try(s, take(t, "k", "1000/1s", 1)); (err != nil) != (c == 'x') {
						t.Fatal(err)
					}
				}

				if got := s.State() == Open; got != want {
					t.Errorf("open %t, want %t", got, want)
				}
			})
		})
	}
}

func TestBreakerCountsSlowCallsAsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{})
		defer s.Close()

		f.be(after(100*ms, nil)) // no slower than Slow
		for range 10 {
			one(t, s, take(t, "k", "100/1h fixed-window", 1))
		}
		if s.State() != Closed {
			t.Fatal("open at Slow")
		}

		// A millisecond more is slow. The answers are used all the same: they are right, only late.
		f.be(after(101*ms, nil))
		for i := range 6 { // after the first it is watched whether this process is late itself
			if s.State() != Closed {
				t.Errorf("open after %d slow calls", i)
			}
			if d := one(t, s, take(t, "k", "100/1h fixed-window", 1)); d.Remaining != int64(89-i) {
				t.Errorf("%d remain", d.Remaining)
			}
		}

		if s.State() != Open {
			t.Error("closed after six slow calls")
		}
	})
}

func TestBreakerIgnoresMistakesOfCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		fallback := newFake()
		s := over(t, f, Options{Fallback: fallback})

		// An operation that is not valid says nothing about the primary.
		negative := take(t, "k", "5/1s", -1)
		for range 10 {
			if _, err := try(s, negative); !errors.Is(err, core.ErrOp) {
				t.Fatal(err)
			}
		}

		// Nor does a caller that has left.
		gone, leave := context.WithCancel(context.Background())
		leave()
		f.be(func(ctx context.Context) error { return ctx.Err() })
		for range 10 {
			err := s.Apply(gone, []core.Op{take(t, "k", "5/1s", 1)}, make([]core.Decision, 1))
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}

		if s.State() != Closed || len(fallback.seen()) != 0 {
			t.Errorf("%s, or the fallback was asked", s.State())
		}
	})
}

func TestBreakerCountsDeadlinesOfThePrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		f.be(func(context.Context) error { return context.DeadlineExceeded })
		for range 5 {
			one(t, s, take(t, "k", "5/1s", 1))
		}
		if s.State() != Open {
			t.Error("closed")
		}
	})
}

func TestBreakerIgnoresErrorsOfOptionsIgnore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory(), Ignore: func(err error) bool { return err == errDown }})

		// The error is the caller's business: it is decided by the fallback, and never counted.
		f.fall()
		for i := range 10 {
			if d := one(t, s, take(t, "k", "10/1h", 1)); d.Remaining != int64(9-i) {
				t.Errorf("%d remain", d.Remaining)
			}
		}

		if s.State() != Closed {
			t.Error("open")
		}
	})
}

func TestBreakerOpenLetsOnlyProbesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		defer s.Close()

		// The jitter goes from the shortest interval, 50 ms, over 75 ms to 100 ms.
		draws := []float64{0, 0.5, 1}
		s.primary.jitter = func() float64 {
			d := draws[0]
			draws = append(draws[1:], d)
			return d
		}

		openNow(t, s, f)

		// A thousand requests in an outage must not cause a single call.
		for range 1000 {
			one(t, s, take(t, "k", "10/1s", 1))
		}

		time.Sleep(400 * ms)
		calls := f.seen()
		want := []time.Duration{50 * ms, 125 * ms, 225 * ms, 275 * ms, 350 * ms}
		if got := instants(calls); !reflect.DeepEqual(got, want) {
			t.Errorf("probes at %v, want %v", got, want)
		}

		// A probe is a Take of the key that failed, under a rule of its own, so that it writes and
		// is not charged to the caller.
		for _, c := range calls {
			if op := c.ops[0]; len(c.ops) != 1 || op.Verb != core.Take || op.Key != "opener" || op.Rule != probeRule {
				t.Errorf("a probe is %+v", c.ops)
			}
		}

		if got := s.Stats(); !reflect.DeepEqual(got, Stats{State: Open, Away: []string{""}, Opened: 1, Probes: 5,
			Local: 1005}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestBreakerClosesAfterFourProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{})
		defer s.Close()
		openNow(t, s, f)

		// Three successes and a failure are not four in a row.
		time.Sleep(150 * ms)
		f.rise() // probes at 200, 300 and 400 succeed
		time.Sleep(300 * ms)
		f.fall() // that at 500 does not
		time.Sleep(100 * ms)
		f.rise() // those at 600, 700, 800 and 900 do

		// The fourth in a row is answered at 900 ms.
		time.Sleep(350*ms - 1)
		if s.State() != Open {
			t.Error("closed too early")
		}

		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if s.State() != Closed || s.Stats().Probes != 9 {
			t.Errorf("%s after %d probes", s.State(), s.Stats().Probes)
		}

		// Once it is closed, no probe follows.
		time.Sleep(time.Hour)
		if got := instants(f.seen()); len(got) != 9 {
			t.Errorf("calls at %v", got)
		}

		// Another outage needs no more probes than the first: the count began anew.
		openNow(t, s, f)
		f.rise()
		time.Sleep(time.Second)
		if got := instants(f.seen()); len(got) != 4 {
			t.Errorf("calls in another outage at %v", got)
		}
	})
}

// The worst case: every probe takes as long as it may, and one was on its way
// when the primary came back.
func TestBreakerClosesWithinASecondOfTheReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{})
		defer s.Close()
		openNow(t, s, f)

		// A probe that hangs from before the return delays the next.
		f.be(after(time.Hour, nil))
		time.Sleep(100 * ms) // the first probe is on its way
		synctest.Wait()
		f.be(after(99*ms, nil)) // a probe may take 100 ms

		back := time.Now()
		for s.State() == Open {
			time.Sleep(ms)
			synctest.Wait()
		}

		// The rest of the 100 ms of the hung probe, and four probes with their waits in between.
		if took := time.Since(back); took != 896*ms {
			t.Errorf("%s", took)
		}
	})
}

func TestBreakerStaysOpenForAFlappingPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		defer s.Close()
		s.primary.jitter = func() float64 { return 0 } // one probe in 50 ms

		// It is away and back each 100 ms, so two probes in a row succeed, and never four.
		f.be(func(context.Context) error {
			if time.Since(f.start)/(100*ms)%2 == 0 {
				return errDown
			}
			return nil
		})

		for range 60_000 {
			one(t, s, take(t, "k", "10/1s", 1))
			time.Sleep(ms)
		}

		// The breaker opened at 4 ms, and from then on there is one probe each 50 ms of the minute.
		if got := s.Stats(); got.Opened != 1 || got.State != Open || got.Probes != 1199 {
			t.Errorf("%+v", got)
		}

		calls := instants(f.seen())
		if len(calls) != 5+1199 {
			t.Fatalf("%d calls", len(calls))
		}
		for i, at := range calls[5:] {
			if at != 4*ms+time.Duration(i+1)*50*ms {
				t.Fatalf("probe %d at %v", i, at)
			}
		}
	})
}

func TestBreakerReopensAtTheFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{})
		defer s.Close()

		// again returns the state after some successes and a failure, right after a return.
		again := func(successes int) State {
			openNow(t, s, f)
			f.rise()
			time.Sleep(400 * ms)
			synctest.Wait()
			for range successes {
				one(t, s, take(t, "k", "1000/1s", 1))
			}

			f.fall()
			_, _ = try(s, take(t, "k", "1000/1s", 1))
			return s.State()
		}

		// Without a success in between, the return was a mistake of the probes.
		if got := again(0); got != Open {
			t.Error("a failure right after the return")
		}

		f.rise()
		time.Sleep(400 * ms)
		synctest.Wait()

		// A single success is enough: the next failure is one of five.
		if got := again(1); got != Closed {
			t.Error("a failure after a success")
		}
	})
}

func TestBreakerSendsOneProbeForManyCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		defer s.Close()
		openNow(t, s, f)

		// The thousand callers ask fifty times each while four probes are sent, each of 30 ms.
		f.be(after(30*ms, nil))
		var herd sync.WaitGroup
		for range 1000 {
			herd.Go(func() {
				for range 50 {
					if _, err := try(s, take(t, "k", "10/1s", 1)); err != nil {
						t.Error(err)
					}
					time.Sleep(10 * ms)
				}
			})
		}

		herd.Wait()
		want := []time.Duration{100 * ms, 230 * ms, 360 * ms, 490 * ms}
		got := instants(f.seen())
		if len(got) < len(want) || !slices.Equal(got[:4], want) {
			t.Errorf("%d calls, the first at %v", len(got), got[:min(5, len(got))])
		}

		if s.State() != Open { // the fourth probe is answered at 520 ms
			t.Error("closed")
		}
	})
}

func TestBreakerIgnoresCallsOfOlderGenerations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{})
		defer s.Close()

		// Ten calls are on their way when the breaker opens by others, and fail when it is closed
		// again.
		f.be(after(10*time.Second, errDown))
		var late sync.WaitGroup
		for range 10 {
			late.Go(func() { _, _ = try(s, take(t, "k", "10/1s", 1)) })
		}
		synctest.Wait()

		openNow(t, s, f)
		f.rise()
		time.Sleep(time.Second) // it is closed, and the late failures are to come
		late.Wait()

		// Had one of the ten been counted, the breaker would have opened again.
		one(t, s, take(t, "k", "10/1s", 1))
		f.fall()
		_, _ = try(s, take(t, "k", "10/1s", 1))
		if s.State() != Closed || s.Stats().Opened != 1 {
			t.Errorf("%+v", s.Stats())
		}
	})
}

func TestErrOpenHasARetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{ProbeInterval: 3 * time.Second})
		defer s.Close()

		// While the breaker is closed, the caller gets the error of its own call.
		f.fall()
		if _, err := try(s, take(t, "k", "5/1s", 1)); err != errDown {
			t.Errorf("while closed: %v", err)
		}

		openNow(t, s, f)
		time.Sleep(500 * ms)

		// Half a second of the three until the next probe is over, and the hint is what is left.
		_, err := try(s, take(t, "k", "5/1s", 1))
		var hint interface{ RetryAfter() time.Duration }
		if !errors.Is(err, ErrOpen) || !errors.As(err, &hint) || hint.RetryAfter() != 2500*ms ||
			err.Error() != "failover: the primary store is bypassed: down" {
			t.Errorf("%v", err)
		}
	})
}

func TestOnChangeIsCalledOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		var reported []State
		f := newFake()
		s := over(t, f, Options{
			Logger:   slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: withoutTime})),
			OnChange: func(_ string, state State) { reported = append(reported, state) },
		})
		defer s.Close()

		// Two outages a minute apart, as lines within a minute would be held back.
		for range 2 {
			openNow(t, s, f)
			time.Sleep(time.Second)
			f.rise()
			time.Sleep(time.Minute) // a new one for the lines
		}

		synctest.Wait()
		want := strings.Repeat(
			`level=WARN msg="headgate: the primary store fails and is bypassed: OnStoreError decides about requests until it answers again" fallback=false error=down`+"\n"+
				`level=INFO msg="headgate: the primary store decides again"`+"\n", 2)
		if text.String() != want {
			t.Errorf("got\n%swant\n%s", text.String(), want)
		}

		if got := fmt.Sprint(reported); got != "[open closed open closed]" {
			t.Errorf("OnChange was called with %s", got)
		}
	})
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func TestOnChangePanicIsHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{OnChange: func(string, State) { panic("hook") }})
		defer s.Close()
		openNow(t, s, f)
		f.rise()
		time.Sleep(time.Second)
		synctest.Wait()
		if s.State() != Closed {
			t.Error("open")
		}
	})
}

func TestProbePanicIsAFailedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{})
		defer s.Close()
		openNow(t, s, f)
		f.be(func(context.Context) error { panic("primary") })
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.Stats(); got.Probes != 10 || got.State != Open {
			t.Errorf("%+v", got)
		}
	})
}

func TestCloseEndsTheProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		openNow(t, s, f)

		// The probe would take an hour: Close has to end it, and may be called twice.
		f.be(after(time.Hour, nil))
		time.Sleep(100 * ms)
		synctest.Wait() // the probe is on its way

		start := time.Now()
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}

		if took := time.Since(start); took != 0 {
			t.Errorf("Close took %s", took)
		}

		// Neither time nor requests make a closed store send anything.
		f.rise()
		f.seen()
		time.Sleep(time.Minute)
		if d := one(t, s, take(t, "k", "5/1s", 1)); !d.Allowed || len(f.seen()) != 0 {
			t.Error("probed, or not decided, after Close")
		}
	})
}

// diagnosed has a finding.
type diagnosed struct {
	core.Store
	code string
}

func (d diagnosed) Report() events.Report {
	return events.Report{Diagnose: func(context.Context, []core.Op) []core.Finding {
		return []core.Finding{{Code: d.code}}
	}}
}

func TestBothStoresAreDiagnosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := over(t, diagnosed{memory(), "1"}, Options{Fallback: diagnosed{memory(), "2"}})
		if got := s.Report().Diagnose(context.Background(), nil); len(got) != 2 || got[0].Code != "1" ||
			got[1].Code != "2" {
			t.Errorf("%v", got)
		}
		if got := over(t, memory(), Options{}).Report().Diagnose(context.Background(), nil); got != nil {
			t.Errorf("%v", got)
		}
	})
}

// timed is a store that waits for a server.
type timed struct{ core.Store }

func (timed) Report() events.Report { return events.Report{MaxCall: 7 * time.Second} }

func TestMaxCallIsThatOfThePrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got := over(t, timed{memory()}, Options{Fallback: memory()}).Report().MaxCall; got != 7*time.Second {
			t.Errorf("%v", got)
		}
		if got := over(t, memory(), Options{Fallback: timed{memory()}}).Report().MaxCall; got != 0 {
			t.Errorf("%v without a server", got)
		}
	})
}

// An Ignore that panics ignores nothing, also in a goroutine of the store.
func TestIgnoreThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, op := newFake(), take(t, "k", "30/1000h", 1)
		var log bytes.Buffer
		s := over(t, f, Options{Fallback: memory(), Failures: 3, Ignore: func(error) bool { panic("hook") },
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer s.Close()

		// One unit is granted by the fallback, and is then owed to the primary.
		busy(f)
		one(t, s, op)

		f.be(func(context.Context) error { // nothing but the payment fails
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.calls[len(f.calls)-1].ops[0].UpTo {
				return errDown
			}
			return nil
		})

		one(t, s, op)
		synctest.Wait()

		// The hook is asked in the goroutine that pays; its panic must not end the process, and the
		// error counts.
		if s.primary.breaker.score.Load() != 1 {
			t.Errorf("the score is %d, want 1 of the payment", s.primary.breaker.score.Load())
		}

		if n := strings.Count(log.String(), `Ignore of a failover store panicked" panic=hook`); n != 1 {
			t.Errorf("%d lines say it:\n%s", n, &log)
		}
	})
}
