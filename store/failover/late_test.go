package failover

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
)

// later is a primary that carries out steps, but answers its callers that it is busy, and
// tells the decisions later.
type later struct {
	*fake
	late  atomic.Bool
	early bool // the decisions are there when the caller asks for them
	tells []func()
}

func newLater(early bool) *later {
	l := &later{fake: newFake(), early: early}
	l.late.Store(true)
	return l
}

func (l *later) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if !l.late.Load() {
		return l.fake.Apply(ctx, ops, out)
	}

	// The caller hears that its answer comes late; the charge is made at once or when it is told.
	answer := &lateAnswer{ops: slices.Clone(ops), out: make([]core.Decision, len(ops))}
	carryOut := func() {
		_ = l.fake.Apply(context.WithoutCancel(ctx), answer.ops, answer.out)
		answer.decide()
	}

	if l.early {
		carryOut()
	} else {
		l.tells = append(l.tells, carryOut)
	}
	return answer
}

// tellAll has the primary tell all that it has not told.
func (l *later) tellAll() {
	for _, tell := range l.tells {
		tell()
	}
	l.tells = nil
}

// lateAnswer is the error of a step that is decided later.
type lateAnswer struct {
	ops []core.Op
	out []core.Decision

	mu      sync.Mutex
	decided bool
	tell    func([]core.Op, []core.Decision) // or nil
}

func (a *lateAnswer) Error() string { return errBusy.Error() }
func (a *lateAnswer) Unwrap() error { return errBusy }

// decide has the answer come.
func (a *lateAnswer) decide() {
	a.mu.Lock()
	a.decided = true
	tell := a.tell
	a.mu.Unlock()
	if tell != nil {
		tell(a.ops, a.out)
	}
}

func (a *lateAnswer) WhenDecided(f func([]core.Op, []core.Decision)) {
	a.mu.Lock()
	a.tell = f
	here := a.decided
	a.mu.Unlock()
	if here {
		f(a.ops, a.out)
	}
}

// A charge that the primary makes after its caller was served by the fallback is that of the
// caller's units: they are charged once, and the rest of the limit is admitted.
func TestLateChargePaysForWhatTheFallbackGranted(t *testing.T) {
	for _, early := range []bool{false, true} {
		for _, text := range slowly {
			t.Run(text, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, op := newLater(early), take(t, "k", text, 1)
					s := over(t, l, Options{Fallback: memory()})
					defer s.Close()

					// The primary charges none of the twelve in time, so the fallback grants them.
					for range 12 {
						if d := one(t, s, op); !d.Allowed || !d.Fallback {
							t.Fatalf("%+v", d)
						}
					}

					l.tellAll()
					l.late.Store(false)

					// The late charges are those twelve of thirty units, so nothing is owed for
					// them.
					wantRemaining(t, l.fake, op, 18)
					if s.owes() != 0 {
						t.Errorf("%d are owed", s.owes())
					}

					time.Sleep(ms) // a step at the instant of a charge may not know of it
					if n := admitted(t, s, op); n != 18 {
						t.Errorf("%d more, want 18", n)
					}
				})
			})
		}
	}
}

// A charge that the primary makes after the fallback has refused its caller goes back.
func TestLateChargeForACallerThatWasRefusedGoesBack(t *testing.T) {
	for _, early := range []bool{false, true} {
		for _, text := range slowly {
			t.Run(text, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, op := newLater(early), take(t, "k", text, 1)
					s := over(t, l, Options{Fallback: memory(), Instances: func() int { return 3 }})
					defer s.Close()

					// The part of one of three is granted, and five callers are refused.
					if n := admitted(t, s, op); n != 10 {
						t.Fatalf("the part is %d", n)
					}

					for range 5 {
						if d := one(t, s, op); d.Allowed {
							t.Fatalf("%+v", d)
						}
					}

					l.tellAll()
					l.late.Store(false)
					time.Sleep(time.Second)
					synctest.Wait()

					// Ten are charged for what was granted; the five go back, in the background.
					wantRemaining(t, l.fake, op, 20)

					if n := admitted(t, s, op); n != 20 {
						t.Errorf("%d more, want 20", n)
					}
				})
			})
		}
	}
}

// A lease that the primary grants late is the one that the fallback has granted instead, and
// ends with it. If the fallback has refused, it ends at once.
func TestLateLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLater(false)
		s := over(t, l, Options{Fallback: memory(), Instances: func() int { return 2 }})
		defer s.Close()

		// The part of one of two instances is one of two leases.
		granted, refused := lease(t, "one", "2 concurrent ttl=1h"), lease(t, "two", "2 concurrent ttl=1h")
		d := one(t, s, granted)
		if !d.Allowed || one(t, s, refused).Allowed {
			t.Fatal("the part is not one lease")
		}

		l.tellAll()
		l.late.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()

		// The lease of the one that was refused is free again at once, the other when it ends.
		wantRemaining(t, l.fake, granted, 1)
		one(t, s, granted.Refund(d))
		wantRemaining(t, l.fake, granted, 2)
	})
}

// A caller without a fallback gets an error, so what its step is charged later goes back: once, and
// nothing of a step that is refused.
func TestLateChargeOfAStepThatFailedGoesBack(t *testing.T) {
	for name, store := range map[string]func(*testing.T, *later) core.Store{
		"no fallback": func(t *testing.T, l *later) core.Store { return over(t, l, Options{}) },
		"strict": func(t *testing.T, l *later) core.Store {
			return over(t, l, Options{Fallback: memory()}).Strict()
		},
	} {
		for _, text := range slowly {
			t.Run(name+" "+text, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, op := newLater(false), take(t, "k", text, 1)
					s := store(t, l)

					// Forty are charged late, of which thirty are granted.
					for range 40 {
						err := s.Apply(t.Context(), []core.Op{op}, make([]core.Decision, 1))
						if !errors.Is(err, errBusy) {
							t.Fatal(err)
						}
					}
					wantRemaining(t, l.fake, op, 30)
					for _, tell := range l.tells {
						tell()
					}
					wantRemaining(t, l.fake, op, 0)

					l.late.Store(false)
					time.Sleep(time.Second)
					synctest.Wait()
					wantRemaining(t, l.fake, op, 30)
				})
			})
		}
	}
}

// A Debit that the primary decides late is the one that the fallback has carried out, and is
// charged once. Without a fallback it stays charged.
func TestLateDebitIsChargedOnce(t *testing.T) {
	for name, options := range map[string]func() Options{
		"fallback": func() Options { return Options{Fallback: memory()} }, "none": func() Options { return Options{} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, op := newLater(false), take(t, "k", slowly[0], 5)
				op.Verb = core.Debit
				s := over(t, l, options())

				_ = s.Apply(t.Context(), []core.Op{op}, make([]core.Decision, 1))
				l.tellAll()
				l.late.Store(false)
				time.Sleep(time.Second)

				op.Verb = core.Take
				one(t, s, op)
				synctest.Wait()
				time.Sleep(time.Second)
				wantRemaining(t, l.fake, op, 20)
			})
		})
	}
}

// A step whose caller has left by itself stays charged: a client that leaves is not one that was
// told something else.
func TestLateChargeOfACallerThatHasLeftStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, op := newLater(false), take(t, "k", slowly[0], 1)
		s := over(t, l, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		if err := s.Apply(ctx, []core.Op{op}, make([]core.Decision, 1)); err == nil {
			t.Fatal("no error")
		}
		l.tellAll()
		l.late.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		wantRemaining(t, l.fake, op, 29)
	})
}
