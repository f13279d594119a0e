package failover

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
)

// failing makes the primary fail for steps with an operation for which fails is true.
func failing(f *fake, fails func(*core.Op) bool) {
	f.be(func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		ops := f.calls[len(f.calls)-1].ops
		for i := range ops {
			if fails(&ops[i]) {
				return errDown
			}
		}
		return nil
	})
}

// A primary that is partly well is bypassed once, until all of it is well.
func TestBreakerProbesWhatFailed(t *testing.T) {
	log, gcra, lease := take(t, "a", "1000/1s sliding-log", 1), take(t, "b", "1000/1s", 1),
		take(t, "b", "9 concurrent ttl=1s", 1)
	lease.Lease = "mine"
	writes := func(op *core.Op) bool { return op.Verb != core.Peek }

	// Each row lets part of the primary's work fail and the rest succeed: a probe of another kind
	// would close the breaker at once.
	rows := map[string]struct {
		ops   []core.Op
		fails func(*core.Op) bool
	}{
		"it reads but does not write": {[]core.Op{gcra}, writes},
		"it writes no leases": {[]core.Op{gcra, lease},
			func(op *core.Op) bool { return op.Limit.Leased() && writes(op) }},
		"its memory is full": {[]core.Op{gcra, log},
			func(op *core.Op) bool { return op.Limit.Algorithm == core.SlidingLog && writes(op) }},
		"one of its servers is away": {[]core.Op{log, gcra}, func(op *core.Op) bool { return op.Key == "b" }},
		"it does not refund":         {[]core.Op{undo(gcra, core.Decision{At: 1})}, writes},
	}

	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, Options{Fallback: memory()})
				defer s.Close()
				failing(f, row.fails)

				out := make([]core.Decision, len(row.ops))

				// Six seconds of steps each 10 ms.
				for range 599 {
					_ = s.Apply(t.Context(), row.ops, out) // a refund that may have run returns its error
					time.Sleep(10 * ms)
				}

				// It opens at the fifth call, at 40 ms. The last probe is before 5990 ms.
				if got := s.Stats(); got.Opened != 1 || got.Probes != 59 || got.State != Open {
					t.Errorf("%+v", got)
				}

				f.rise()
				time.Sleep(400 * ms)
				synctest.Wait()

				if s.State() != Closed {
					t.Error("open after the return")
				}
			})
		})
	}
}

func TestProbesOfPeeksWriteNothing(t *testing.T) {
	peek := take(t, "a", "9/1s", 1)
	peek.Verb = core.Peek
	free := take(t, "b", "9/1s", 0)
	got := probeOf([]core.Op{peek, free, peek})
	if len(got) != 2 || got[0].Verb != core.Peek || got[1].Verb != core.Peek {
		t.Errorf("%+v", got)
	}
	if got := probeOf([]core.Op{peek, take(t, "a", "9/1s", 1)}); len(got) != 1 || got[0].Verb != core.Take {
		t.Errorf("%+v", got)
	}
}

// One program whose clock is wrong does not lose the primary for its other rules.
func TestBreakerStaysClosedIfTheWindowsAreOfAnotherTime(t *testing.T) {
	f := newFake()
	s := over(t, f, Options{Fallback: memory()})
	defer s.Close()

	// Windows that do not fit the primary's time are an error of the program that sent them.
	f.be(func(context.Context) error { return core.ErrWindows })
	op, out := take(t, "k", "9/day", 1), make([]core.Decision, 1)
	op.Windows = &core.Windows{0, 1, 2, 3, 4, 5, 6, 7}

	for range 100 {
		if err := s.Apply(t.Context(), []core.Op{op}, out); !errors.Is(err, core.ErrWindows) {
			t.Fatalf("%+v, %v", out, err)
		}
	}

	if got := s.Stats(); got.Opened != 0 || got.State != Closed {
		t.Errorf("%+v", got)
	}
}

// However short the interval is, every probe is admitted under every algorithm, so
// that it writes.
func TestProbesAreAdmitted(t *testing.T) {
	for _, text := range append(rates, "12 concurrent ttl=1h") {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// An interval of half a millisecond for a thousand probes.
				s, op := memory(), take(t, "k", text, 1)
				for range 1000 {
					out := make([]core.Decision, 1)
					if err := s.Apply(t.Context(), probeOf([]core.Op{op}), out); err != nil || !out[0].Allowed {
						t.Fatal(out, err)
					}
					time.Sleep(ms / 2)
				}
			})
		})
	}
}
