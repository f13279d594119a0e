package failover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
)

// busy has the primary fail without being at fault.
func busy(f *fake) { f.be(func(context.Context) error { return errBusy }) }

// owing returns a store over f with a limit for one instance, whose fallback has granted n
// units of op.
func owing(t *testing.T, f *fake, op core.Op, n int) *Store {
	t.Helper()
	s := over(t, f, Options{Fallback: memory()})
	busy(f)
	for range n {
		if d := one(t, s, op); !d.Allowed || !d.Fallback {
			t.Fatalf("%+v", d)
		}
	}
	f.rise()
	f.seen()
	return s
}

// The first answer of the primary about a key lets it learn what the fallback has granted, in
// each algorithm: one instance then admits what is left.
func TestOwedUnitsArePaidWhenThePrimaryAnswers(t *testing.T) {
	for _, text := range slowly {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, op := newFake(), take(t, "k", text, 1)
				s := owing(t, f, op, 12)
				defer s.Close()

				// The primary has 30 and has granted one. It does not hear of the twelve before
				// this answer.
				if d := one(t, s, op); !d.Allowed || d.Fallback || d.Remaining != 29 {
					t.Errorf("%+v", d)
				}

				// The payment follows in a call of its own, an UpTo Take, as no more can be paid
				// than is left.
				synctest.Wait()
				calls := f.seen()
				if len(calls) != 2 || len(calls[1].ops) != 1 {
					t.Fatalf("%+v", calls)
				}

				if o := calls[1].ops[0]; o.Verb != core.Take || !o.UpTo || o.Soft || o.Cost != 12 || o.ID() != op.ID() {
					t.Errorf("the payment is %+v", o)
				}

				if n := remaining(t, f, op); n != 30-1-12 {
					t.Errorf("%d remain at the primary", n)
				}

				time.Sleep(ms) // a step at the instant of the payment may not know of it
				if n := admitted(t, s, op); n != 17 {
					t.Errorf("%d more", n)
				}

				if s.owes() != 0 {
					t.Errorf("%d are owed", s.owes())
				}
			})
		})
	}
}

// What does not fit at the primary stays owed. A payment of which it is not known whether it
// was made is not repeated, and one that was not sent is.
// The first payment fails in the way of the row, and later ones succeed.
func TestPaymentsThatFail(t *testing.T) {
	const text = "30/1000h"
	rows := map[string]struct {
		err         error
		made        bool // although it fails
		owed, there int64
		payments    int
	}{
		"it was not sent":           {unsent{errBusy}, false, 0, 30 - 2 - 12, 2},
		"it may have been made":     {errDown, false, 12, 28, 1},
		"it was made, and answered": {errDown, true, 12, 28 - 12, 1},
	}

	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, op := newFake(), take(t, "k", text, 1)
				s := owing(t, f, op, 12)
				defer s.Close()
				payments := 0
				f.be(func(ctx context.Context) error {
					f.mu.Lock()
					pays := f.calls[len(f.calls)-1].ops[0]
					f.mu.Unlock()

					// Steps of callers are well in any case.
					if !pays.UpTo {
						return nil
					}

					// Only the first payment fails.
					if payments++; payments > 1 {
						return nil
					}

					if row.made {
						_ = f.Store.Apply(ctx, []core.Op{pays}, make([]core.Decision, 1))
					}
					return row.err
				})

				// Each answer of the primary is an occasion to pay.
				one(t, s, op)
				synctest.Wait()
				one(t, s, op)
				synctest.Wait()

				if s.owes() != row.owed || payments != row.payments || remaining(t, f, op) != row.there {
					t.Errorf("%d owed after %d payments, %d remain", s.owes(), payments, remaining(t, f, op))
				}

				// What was paid or is still owed is not granted again: 30 less twelve by the
				// fallback and the two steps.
				f.rise()
				time.Sleep(ms)
				want := min(18-2, int(row.there)-int(row.owed)) // 12 by the fallback, and 2
				if n := admitted(t, s, op); n != max(0, want) {
					t.Errorf("%d more, want %d", n, want)
				}
			})
		})
	}
}

func TestNoPaymentWhileThePrimaryIsBypassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, op := newFake(), take(t, "k", "30/1000h", 1)
		s := owing(t, f, op, 12)
		defer s.Close()

		openNow(t, s, f)

		// The key is queued for payment when the breaker opens.
		s.mirror.owed.shardOf("k").keys[op.ID()].queued = true
		s.mirror.pay(op.ID())
		if len(f.seen()) != 0 || s.owes() != 12+5 { // and those of openNow
			t.Errorf("%d are owed", s.owes())
		}

		// After the return the next answer is the occasion, and the debt is paid once.
		f.rise()
		time.Sleep(time.Second)
		synctest.Wait()
		one(t, s, op)
		synctest.Wait()

		if n := remaining(t, f, op); n != 30-1-12 {
			t.Errorf("%d remain", n)
		}
	})
}

// wantRemaining checks how many units the store has left for the key of op.
func wantRemaining(t *testing.T, s core.Store, op core.Op, want int64) {
	t.Helper()
	if n := remaining(t, s, op); n != want {
		t.Errorf("%d units remain of %s, want %d", n, op.Key, want)
	}
}

// The limit of one rule refuses a step that the primary has admitted. The units of the other
// rules come back, there and in the fallback.
func TestRefusedStepGivesItsOtherUnitsBack(t *testing.T) {
	for _, text := range slowly {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, fallback, op := newFake(), memory(), take(t, "k", text, 1)
				s := over(t, f, Options{Fallback: fallback})
				defer s.Close()
				other, third := take(t, "j", text, 3), take(t, "i", text, 2)
				third.Soft = true

				// 29 units are granted by the fallback, and one by the primary to another instance.
				busy(f)
				for range 29 {
					one(t, s, op)
				}

				f.rise()
				one(t, f, take(t, "k", text, 1)) // by another instance

				// The step has three rules. The second is one of two units where none is left
				// beside the debt.
				out := make([]core.Decision, 3)
				op.Cost = 2
				if err := s.Apply(t.Context(), []core.Op{other, op, third}, out); err != nil {
					t.Fatal(err)
				}

				// 27 remain at the primary, and 29 are owed: 2 are paid.
				if d := out[1]; d.Allowed || d.Taken != 0 || d.Remaining != 0 || d.Fallback || d.Origin != 0 {
					t.Errorf("%+v", d)
				}
				checkRefusal(t, &op, &out[1])

				// The other rules were charged, and their units are on the way back.
				for i, want := range map[int]int64{0: 30, 2: 30} {
					if d := out[i]; !d.Allowed || d.Taken != 0 || d.Remaining != want {
						t.Errorf("operation %d: %+v", i, d)
					}
				}

				time.Sleep(time.Second)
				synctest.Wait()
				for _, o := range []core.Op{other, third} {
					wantRemaining(t, f, o, 30)
					wantRemaining(t, fallback, o, 30)
				}
				wantRemaining(t, f, op, 0) // 1, 2 and a payment of 27

				if s.owes() != 0 {
					t.Errorf("%d are owed", s.owes())
				}
			})
		})
	}
}

// A Soft Take is refused by itself, and the units beyond what it owed come back.
func TestSoftTakeIsRefusedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, op := newFake(), take(t, "k", "30/1000h", 1)
		s := owing(t, f, op, 3)
		defer s.Close()

		// Three are owed of thirty, so 28 do not fit although the primary has them. The step itself
		// goes on.
		op.Soft, op.Cost = true, 28
		other := take(t, "j", "30/1000h", 1)
		out := make([]core.Decision, 2)
		if err := s.Apply(t.Context(), []core.Op{op, other}, out); err != nil {
			t.Fatal(err)
		}

		if out[0].Allowed || out[0].Remaining != 27 || !out[1].Allowed || out[1].Taken != 1 {
			t.Errorf("%+v", out)
		}

		// The three that are owed are charged, and 25 of the 28 come back.
		time.Sleep(time.Second)
		synctest.Wait()
		if x, y := remaining(t, f, op), remaining(t, f, other); x != 27 || y != 29 {
			t.Errorf("%d and %d remain", x, y)
		}
	})
}

// Rows are operations of which the primary admits more than is left beside the owed units.
func TestGateOfOtherOperations(t *testing.T) {
	// Ten of thirty units are owed, so twenty are left.
	rows := map[string]struct {
		change  func(*core.Op)
		allowed bool
		taken   int64
	}{
		"an UpTo Take":     {func(op *core.Op) { op.UpTo, op.Cost = true, 30 }, false, 0},
		"a booking":        {func(op *core.Op) { op.MaxWait, op.Cost = time.Hour, 30 }, false, 0},
		"a Debit":          {func(op *core.Op) { op.Verb, op.Cost = core.Debit, 30 }, true, 30},
		"a Take that fits": {func(op *core.Op) { op.Cost = 20 }, true, 20},
		"one unit more":    {func(op *core.Op) { op.Cost = 21 }, false, 0},
		"no unit":          {func(op *core.Op) { op.Cost = 0 }, true, 0},
	}

	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, op := newFake(), take(t, "k", "30/1000h", 1)
				s := owing(t, f, op, 10)
				defer s.Close()
				row.change(&op)

				// A Debit has been spent already and is never refused; a booking or an UpTo Take is
				// not granted half.
				d := one(t, s, op)
				if d.Allowed != row.allowed || d.Taken != row.taken || d.Wait != 0 {
					t.Errorf("%+v", d)
				}

				checkRefusal(t, &op, &d)
			})
		})
	}
}

// Time pays: what is owed is never more than what is still in use in the fallback.
func TestOwedUnitsAge(t *testing.T) {
	// after is when that much of the thirty has come back by itself: a third of a rate, or a whole
	// window.
	rows := map[string]struct {
		after time.Duration
		owed  int64
	}{
		"30/30m": {10 * time.Minute, 20}, "30/30m fixed-window": {30 * time.Minute, 0},
		"30/30m sliding-log":    {30 * time.Minute, 0},
		"30/30m sliding-window": {33 * time.Minute, 0}, "10/10m token-bucket burst=30": {10 * time.Minute, 20},
		"30/day": {24 * time.Hour, 0},
	}

	for text, row := range rows {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, op := newFake(), take(t, "k", text, 1)
				s := owing(t, f, op, 30)
				defer s.Close()

				// The primary is used up by another instance before and after, so that none can be
				// paid.
				one(t, f, core.Op{Verb: core.Take, Rule: "r", Key: "k", Limit: op.Limit, Cost: 30,
					Windows: inWindows(op).Windows}) // so that none can be paid

				time.Sleep(row.after)
				one(t, f, core.Op{Verb: core.Take, UpTo: true, Rule: "r", Key: "k", Limit: op.Limit, Cost: 30,
					Windows: inWindows(op).Windows})
				one(t, s, op)
				synctest.Wait()

				// What is owed is what the fallback still has in use.
				if s.owes() != row.owed {
					t.Errorf("%d are owed, want %d", s.owes(), row.owed)
				}
			})
		})
	}
}

func TestResetForgetsWhatIsOwed(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprint("away ", away), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, op := newFake(), take(t, "k", "30/1000h", 1)
				s := owing(t, f, op, 12)
				defer s.Close()
				if away {
					busy(f)
				}

				// A Reset means that nothing was used, whether the primary hears of it now or
				// later.
				reset := op
				reset.Verb = core.Reset
				_, _ = try(s, reset)
				if s.owes() != 0 {
					t.Errorf("%d are owed", s.owes())
				}
			})
		})
	}
}

// A refund of units that the fallback granted lowers what is owed. Those that were paid come
// back from the primary.
func TestRefundOfOwedUnits(t *testing.T) {
	for _, paid := range []bool{false, true} {
		t.Run(fmt.Sprint("paid ", paid), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, fallback, op := newFake(), memory(), take(t, "k", "30/1000h", 12)
				s := over(t, f, Options{Fallback: fallback})
				defer s.Close()

				// The fallback grants twelve units.
				busy(f)
				d := one(t, s, op)

				f.rise()

				// An answer of the primary lets them be paid: it has 30 less one and twelve.
				there := int64(30)
				if paid {
					unit := op
					unit.Cost = 1
					one(t, s, unit)
					synctest.Wait()
					there = 29
					if n := remaining(t, f, op); n != 17 {
						t.Fatalf("%d remain", n)
					}
				}

				// Five of the twelve are given back.
				part := undo(op, d)
				part.Cost = 5
				one(t, s, part)
				time.Sleep(time.Second)
				synctest.Wait()

				// Unpaid, they are no longer owed. Paid, they come back from the primary, which had
				// 17.
				wantOwed, wantThere := int64(7), there
				if paid {
					wantOwed, wantThere = 0, there-7
				}
				if x, y, z := s.owes(), remaining(t, f, op), remaining(t, fallback, op); x != wantOwed ||
					y != wantThere || z != there-7 {
					t.Errorf("%d owed, %d and %d remain", x, y, z)
				}
			})
		})
	}
}

// Leases held at once in one instance, from the primary and from the fallback, never exceed
// the quota. The primary's lease is released.
func TestLeasesOfBothStoresAreWithinTheQuota(t *testing.T) {
	const text = "3 concurrent ttl=1h"
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		defer s.Close()

		// One lease is the primary's and one the fallback's.
		a := lease(t, "a", text)
		da := one(t, s, a)
		busy(f)
		b := lease(t, "b", text)
		db := one(t, s, b)

		// The primary sees two free, one of which is held here.
		f.rise()
		if d := one(t, s, lease(t, "c", text)); !d.Allowed || d.Fallback {
			t.Errorf("the third: %+v", d)
		}

		// The fourth would be one too many, although the primary has granted it; that lease goes
		// back.
		refused := one(t, s, lease(t, "d", text))
		if refused.Allowed || refused.Fallback || refused.Remaining != 0 || refused.RetryAfter != time.Hour {
			t.Errorf("the fourth: %+v", refused)
		}

		time.Sleep(time.Second)
		synctest.Wait()
		if n := remaining(t, f, a); n != 1 { // a and c are held
			t.Errorf("%d remain at the primary", n)
		}

		// Renewing the fallback's lease makes the primary hold it.
		if d := one(t, s, b); !d.Allowed || d.Fallback { // renewed, the primary knows it
			t.Errorf("the renewal: %+v", d)
		}

		if n := remaining(t, f, a); n != 0 {
			t.Errorf("%d remain at the primary", n)
		}

		// Both stores are asked to release both kinds, so two more fit.
		one(t, s, undo(b, db))
		one(t, s, undo(a, da))

		for _, id := range []string{"e", "f"} {
			if d := one(t, s, lease(t, id, text)); !d.Allowed {
				t.Errorf("%s: %+v", id, d)
			}
		}
	})
}

// Random schedules of leases: no more than the quota are held at once.
func TestScheduleHoldsNoMoreLeasesThanTheQuota(t *testing.T) {
	const quota, text = 3, "3 concurrent ttl=1000h"
	for range 40 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			p := newDetained()
			s := over(t, p, Options{Fallback: memory()})
			defer s.Close()

			c := &crowd{t: t}

			// held are the leases that callers believe to hold.
			held := []core.Op{}

			for i := range 80 {
				// Leases are asked for, answers come, the primary refuses and is well again, and
				// leases end.
				n := p.waiting()
				switch k := r.IntN(10); {
				case k < 4:
					op := lease(t, fmt.Sprint(i), text)
					c.all.Go(func() {
						if d, err := try(s, op); err == nil && d.Allowed {
							c.mu.Lock()
							held = append(held, undo(op, d))
							c.mu.Unlock()
						}
					})
					synctest.Wait()
				case k < 6 && n > 0:
					p.answer(r.IntN(n), nil)
				case k < 7:
					p.set(false, unsent{errBusy})
				case k < 8:
					p.set(false, nil)
				case len(held) > 0:
					j := r.IntN(len(held))
					op := held[j]
					held = append(held[:j:j], held[j+1:]...)
					_, _ = try(s, op)
				}

				if len(held) > quota {
					t.Fatalf("seed %d: %d leases are held after step %d", seed, len(held), i)
				}
			}

			// The last answers come, and still no more are held.
			for n := p.waiting(); n > 0; n-- {
				p.answer(0, nil)
			}
			c.all.Wait()

			if len(held) > quota {
				t.Errorf("seed %d: %d leases are held", seed, len(held))
			}
		})
	}
}

// The keys that owe are bounded. What they leave no room for is counted.
func TestKeysThatOweAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		defer s.Close()

		// Three times as many keys as may owe, of a unit each.
		busy(f)
		for i := range 3 * maxOwed * owedShards {
			one(t, s, take(t, fmt.Sprint(i), "30/1h", 1))
		}

		// What is beyond the bound is granted, as before, but can be lost: the count says how much.
		if n := s.mirror.owed.keys.Load(); n != maxOwed*owedShards || s.owes() != n ||
			s.mirror.owed.forgotten.Load() != uint64(2*n) {
			t.Errorf("%d keys owe %d, %d are forgotten", n, s.owes(), s.mirror.owed.forgotten.Load())
		}

		// An hour later all units have come back, so nothing is owed by then.
		time.Sleep(time.Hour)
		for i := range 2 * owedShards { // those whose time is over make room
			one(t, s, take(t, fmt.Sprint("new", i), "30/1h", 1))
		}

		if n := s.mirror.owed.keys.Load(); n >= maxOwed*owedShards ||
			s.mirror.owed.forgotten.Load() != uint64(2*maxOwed*owedShards) {
			t.Errorf("%d keys owe", n)
		}
	})
}

// Once nothing is owed any longer, decisions of the primary are not compared.
func TestGateRestsWhenNothingIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, op := newFake(), take(t, "k", "30/1h", 1)
		s := owing(t, f, op, 2)
		defer s.Close()
		other := take(t, "another", "30/1h", 1)

		// The debt is paid with this answer, but the comparison goes on for the time being.
		one(t, s, op) // and the payment
		synctest.Wait()
		if !s.mirror.owed.busy.Load() {
			t.Error("at rest at once")
		}

		// A minute later the units are back. Each answer looks at one more shard of the keys, until
		// all are found empty.
		time.Sleep(time.Minute)
		for range 2 * owedShards { // each looks at one shard more
			one(t, s, other)
		}
		time.Sleep(time.Second)
		one(t, s, other)

		if s.mirror.owed.busy.Load() || s.mirror.owed.keys.Load() != 0 {
			t.Errorf("%d keys owe", s.mirror.owed.keys.Load())
		}
	})
}

func TestCloseEndsPayments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, op := newFake(), take(t, "k", "30/1h", 1)
		s := owing(t, f, op, 2)

		// The payment hangs until it is told to end.
		f.be(func(ctx context.Context) error {
			f.mu.Lock()
			pays := f.calls[len(f.calls)-1].ops[0].UpTo
			f.mu.Unlock()
			if pays {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})

		one(t, s, op)
		synctest.Wait()

		// Close ends it, and it is no failure of the primary.
		s.Close()
		one(t, s, op)

		if got := s.Stats(); got.State != Closed || s.primary.breaker.score.Load() != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestWasNotSent(t *testing.T) {
	for err, want := range map[error]bool{
		errDown: false, errBusy: false, ErrOpen: true, &openError{}: true, unsent{errDown}: true,
		fmt.Errorf("x: %w", unsent{errDown}): true,
		errors.Join(errDown, errBusy):        false,
	} {
		if wasNotSent(err) != want {
			t.Errorf("%v: %t", err, !want)
		}
	}
}
