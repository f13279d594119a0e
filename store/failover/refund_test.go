package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
)

// lease returns a Take of a lease.
func lease(t testing.TB, id, text string) core.Op {
	op := take(t, "k", text, 1)
	op.Lease = id
	return op
}

// comeBack makes the primary well and waits until it is in use.
func comeBack(t testing.TB, s *Store, f *fake) {
	t.Helper()
	f.rise()
	time.Sleep(time.Second)
	synctest.Wait()
	if s.State() != Closed {
		t.Fatal("open")
	}
}

func TestRefundOfTheFallbacksUnitsStaysThere(t *testing.T) {
	for _, text := range rates {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, fallback := newFake(), memory()
				s := over(t, f, threeOf(Options{Fallback: fallback}))
				defer s.Close()

				op, part := take(t, "k", text, 1), take(t, "k", text, 1)
				part.Limit = op.Limit.Part(3)

				// One unit is the primary's, with a copy in the fallback; two are the fallback's
				// own, of its part of four.
				one(t, s, op)
				openNow(t, s, f)
				d, e := one(t, s, op), one(t, s, op)

				if d.Origin == 0 || d.ResetAfter%time.Microsecond != 0 {
					t.Errorf("the decision %+v has no origin or a reset that is not in whole microseconds", d)
				}

				// Given back in the outage or after it, they return to the fallback alone.
				one(t, s, undo(op, d))
				if got := remaining(t, fallback, part); got != 2 {
					t.Errorf("%d remain in the fallback, want 2", got)
				}

				comeBack(t, s, f)
				one(t, s, undo(op, e))
				if got := remaining(t, fallback, part); got != 3 {
					t.Errorf("%d remain in the fallback, want 3", got)
				}

				// The primary keeps the one that it has granted.
				if got := remaining(t, f, op); got != 11 {
					t.Errorf("%d remain at the primary, want 11", got)
				}
			})
		})
	}
}

// A step that settles refunds one rule, debits another and releases a lease. In an outage
// the refund and the release wait for the primary, and the fallback is debited.
func TestSettleInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, fallback := newFake(), memory()
		s := over(t, f, threeOf(Options{Fallback: fallback}))
		defer s.Close()
		less, more, held := take(t, "k", "12/1h", 4), take(t, "k", "12/1h fixed-window", 1),
			lease(t, "a", "1 concurrent ttl=10m")
		more.Rule, held.Rule = "more", "held"
		ops, out := []core.Op{less, more, held}, make([]core.Decision, 3)
		if err := s.Apply(t.Context(), ops, out); err != nil || !core.Granted(ops, out) {
			t.Fatalf("%+v, %v", out, err)
		}

		// The request ends in the outage: three of four units come back, two more are charged, and
		// the lease ends.
		openNow(t, s, f)
		debit := more
		debit.Verb, debit.Cost = core.Debit, 2
		back := undo(less, out[0])
		back.Cost = 3
		if err := s.Apply(t.Context(), []core.Op{back, debit, undo(held, out[2])}, out); err != nil ||
			out[1].Taken != 2 {
			t.Fatalf("%+v, %v", out, err)
		}

		part := more
		part.Limit = more.Limit.Part(3)
		if n := remaining(t, fallback, part); n != 1 {
			t.Errorf("%d of 4 remain in the fallback after 1 and 2", n)
		}

		// Afterwards the primary has heard of the refund and the release, and not of the debit,
		// which the fallback has charged.
		comeBack(t, s, f)
		for op, want := range map[*core.Op]int64{&less: 11, &more: 11, &held: 1} {
			if n := remaining(t, f, *op); n != want {
				t.Errorf("%s: %d remain at the primary, want %d", op.Rule, n, want)
			}
		}
	})
}

// A settling of several rules may refund under one and charge under another. That the refund is
// lost is told, and the charge is made.
func TestSettleTellsOfARefundThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		fallback := memory()
		s := over(t, f, Options{Fallback: fallback})
		defer s.Close()
		less, more := take(t, "k", "12/1h", 4), take(t, "k", "12/1h fixed-window", 1)
		more.Rule = "more"
		ops, out := []core.Op{less, more}, make([]core.Decision, 2)
		if err := s.Apply(t.Context(), ops, out); err != nil || !core.Granted(ops, out) {
			t.Fatalf("%+v, %v", out, err)
		}

		f.fall()
		debit, back := more, undo(less, out[0])
		debit.Verb, debit.Cost = core.Debit, 2

		// The refund fails while the breaker is closed, and it is not known whether it was made: it
		// is not repeated.
		if err := s.Apply(t.Context(), []core.Op{back, debit}, out); !errors.Is(err, errDown) {
			t.Errorf("the settling: %v", err)
		}

		wantRemaining(t, fallback, more, 12-1-2)
	})
}

func TestRefundWaitsForThePrimary(t *testing.T) {
	for _, text := range rates {
		for _, with := range []core.Store{nil, memory()} {
			t.Run(fmt.Sprint(text, with != nil), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFake()
					o := Options{Fallback: with}
					if with != nil {
						o.Fallback = memory()
					}
					s := over(t, f, o)
					defer s.Close()

					// Two units are charged, and the refund of one comes when the breaker is open.
					op := take(t, "k", text, 1)
					one(t, s, op)
					d := one(t, s, op)

					openNow(t, s, f)
					if r := one(t, s, undo(op, d)); !r.Allowed {
						t.Errorf("%+v", r)
					}

					// It waits, and nothing is sent.
					if got := s.Stats(); got.Waits != 1 || len(f.seen()) != 0 {
						t.Errorf("%+v", got)
					}

					// The copy in the fallback is given back at once.
					if o.Fallback != nil {
						if got := remaining(t, s, op); got != 11 {
							t.Errorf("%d remain in the fallback", got)
						}
					}

					// On the return it is made, once.
					comeBack(t, s, f)
					if got := remaining(t, f, op); got != 11 || s.Stats().Waits != 0 {
						t.Errorf("%d remain, %+v", got, s.Stats())
					}
				})
			})
		}
	}
}

func TestRefundThatMayHaveRunIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		op := take(t, "k", "12/1h", 1)
		d := one(t, s, op)
		f.fall()
		if _, err := try(s, undo(op, d)); err != errDown || s.Stats().Waits != 0 {
			t.Errorf("%v, %+v", err, s.Stats())
		}
	})
}

func TestLeaseOfThePrimaryIsReleasedOnItsReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, threeOf(Options{Fallback: memory()}))
		defer s.Close()

		const text = "3 concurrent ttl=1h"
		a, b := lease(t, "a", text), lease(t, "b", text)

		// The first release is sent and fails, and the second finds the breaker open. Both wait.
		da, db := one(t, s, a), one(t, s, b)
		f.fall()
		one(t, s, undo(a, da)) // a release may be tried again, so it waits although it was sent
		openNow(t, s, f)
		one(t, s, undo(b, db))

		if got := s.Stats().Waits; got != 2 {
			t.Fatalf("%d wait", got)
		}

		// The fallback's copies have ended, so its part of one lease is free.
		if d := one(t, s, lease(t, "c", text)); !d.Allowed {
			t.Errorf("%+v", d)
		}

		comeBack(t, s, f)
		if got := remaining(t, f, a); got != 3 {
			t.Errorf("%d remain at the primary", got)
		}
	})
}

func TestLeaseIsRenewedInTheOutageAndAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, threeOf(Options{Fallback: memory()}))
		defer s.Close()

		const text = "3 concurrent ttl=10s"

		// The primary has granted all three leases, so the fallback knows all of them.
		var held []core.Op
		for _, id := range []string{"a", "b", "c"} {
			op := lease(t, id, text)
			held = append(held, op)
			one(t, s, op)
		}

		// For thirty seconds, three times the TTL, they are renewed in the fallback.
		openNow(t, s, f)
		for range 6 {
			time.Sleep(5 * time.Second)
			for _, op := range held {
				if !one(t, s, op).Allowed {
					t.Fatalf("lease %s was lost", op.Lease)
				}
			}

			// No other caller gets one meanwhile.
			if one(t, s, lease(t, "d", text)).Allowed {
				t.Fatal("one too many")
			}
		}

		comeBack(t, s, f)
		for _, op := range held { // they have expired at the primary
			if !one(t, s, op).Allowed {
				t.Fatalf("lease %s was not taken anew", op.Lease)
			}
		}

		if one(t, s, lease(t, "d", text)).Allowed {
			t.Fatal("one too many")
		}
	})
}

func TestLeaseOfTheOutageIsReleasedInBothStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, fallback := newFake(), memory()
		s := over(t, f, Options{Fallback: fallback})
		defer s.Close()

		// The lease begins in one outage, is renewed at the primary after it, and ends in another.
		op := lease(t, "a", "1 concurrent ttl=1h")
		openNow(t, s, f)
		d := one(t, s, op)

		comeBack(t, s, f)
		one(t, s, op) // a renewal takes it from the primary

		openNow(t, s, f)
		one(t, s, undo(op, d)) // in another outage

		if got := remaining(t, fallback, op); got != 1 {
			t.Errorf("%d remain in the fallback", got)
		}

		// The release has waited for the primary.
		comeBack(t, s, f)
		if got := remaining(t, f, op); got != 1 {
			t.Errorf("%d remain at the primary", got)
		}
	})
}

func TestLeaseUnknownToThePrimaryDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		openNow(t, s, f)

		// The fallback alone knows these leases, so their releases go to it alone: ten
		// thousand would fill the list.
		op := lease(t, "a", "1 concurrent ttl=1h")
		for range 10_000 {
			d := one(t, s, op)
			if !d.Allowed {
				t.Fatal("refused")
			}
			one(t, s, undo(op, d))
		}

		if got := s.Stats(); got.Waits != 0 || got.Lost != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestReleaseIsRepeatedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{})
		defer s.Close()

		// The release is sent and fails. It may have been carried out, and to repeat it does no
		// harm.
		op := lease(t, "a", "1 concurrent ttl=1h")
		d := one(t, s, op)
		f.fall()
		one(t, s, undo(op, d))

		f.rise()
		time.Sleep(100 * ms)
		synctest.Wait()

		if got := remaining(t, f, op); got != 1 || s.Stats().Waits != 0 {
			t.Errorf("%d remain, %+v", got, s.Stats())
		}
	})
}

// The answer to the Take was lost, so that both may hold the lease.
func TestLeaseThatThePrimaryMayHoldIsReleasedInBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, fallback := newFake(), memory()
		s := over(t, f, Options{Fallback: fallback})
		op := lease(t, "a", "1 concurrent ttl=1h")
		f.mute = true
		d := one(t, s, op)
		f.mute = false
		one(t, s, undo(op, d))
		if a, b := remaining(t, f, op), remaining(t, fallback, op); a != 1 || b != 1 {
			t.Errorf("%d and %d remain", a, b)
		}
	})
}

func TestReleaseOfAnExpiredLeaseIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		defer s.Close()

		// The release waits for as long as the TTL, after which the lease has ended by itself.
		op := lease(t, "a", "1 concurrent ttl=10s")
		d := one(t, s, op)
		openNow(t, s, f)
		one(t, s, undo(op, d))
		time.Sleep(10 * time.Second)

		f.seen()
		comeBack(t, s, f)

		for _, c := range f.seen() {
			if c.ops[0].Verb == core.Refund {
				t.Error("released")
			}
		}

		if s.Stats().Waits != 0 {
			t.Error("waits still")
		}
	})
}

func TestRefundCountsAsWaitingUntilItIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{})
		defer s.Close()

		// A release waits in an outage.
		op := lease(t, "a", "1 concurrent ttl=1h")
		d := one(t, s, op)
		openNow(t, s, f)
		one(t, s, undo(op, d))

		var waits []int

		// The first attempt after the return fails as well, so there are two.
		f.be(func(context.Context) error {
			if calls := f.calls; calls[len(calls)-1].ops[0].Verb == core.Refund {
				if waits = append(waits, s.Stats().Waits); len(waits) == 1 {
					return errDown // it is sent again
				}
			}
			return nil
		})

		time.Sleep(2 * time.Second)
		synctest.Wait()

		// Until it is done, it counts among those that wait, during the attempts too.
		if got := s.Stats(); !slices.Equal(waits, []int{1, 1}) || got.Waits != 0 || got.Lost != 0 {
			t.Errorf("%v waited during the refunds, %+v", waits, got)
		}

		if got := remaining(t, f, op); got != 1 {
			t.Errorf("%d remain", got)
		}
	})
}

func TestResetWaitsForThePrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		defer s.Close()

		// The limit is used up, and the reset in the outage frees it here at once.
		op := take(t, "k", "12/1h", 12)
		one(t, s, op)
		openNow(t, s, f)

		reset := op
		reset.Verb = core.Reset
		if d := one(t, s, reset); d.Remaining != 12 {
			t.Errorf("%+v", d)
		}

		// The primary hears of it on the return.
		comeBack(t, s, f)
		if got := remaining(t, f, op); got != 12 {
			t.Errorf("%d remain", got)
		}
	})
}

func TestResetReachesTheFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, fallback := newFake(), memory()
		s := over(t, f, Options{Fallback: fallback})
		op := take(t, "k", "12/1h", 12)
		one(t, s, op)
		op.Verb = core.Reset
		one(t, s, op)
		if got := remaining(t, fallback, op); got != 12 {
			t.Errorf("%d remain", got)
		}
	})
}

func TestWaitingOperationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{})
		openNow(t, s, f)

		// What waits is bounded, as an outage may be long: the list is filled to its last place.
		op := undo(take(t, "k", "12/1h", 1), core.Decision{At: 1, ResetAfter: time.Microsecond})
		for range maxWaiting {
			one(t, s, op)
		}

		// One more says so, and is lost.
		_, err := try(s, op)
		if !errors.Is(err, ErrOpen) ||
			err.Error() != "failover: 4096 operations wait already: failover: the primary store is bypassed: down" {
			t.Error(err)
		}

		if got := s.Stats(); got.Waits != maxWaiting || got.Lost != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestWaitingOperationsSurviveAnotherOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{})
		defer s.Close()

		// Ten leases wait to be released.
		var undone []core.Op
		for i := range 10 {
			op := lease(t, fmt.Sprint(i), "10 concurrent ttl=1h")
			undone = append(undone, undo(op, one(t, s, op)))
		}

		openNow(t, s, f)
		for _, op := range undone {
			one(t, s, op)
		}

		// The fourth release meets the next outage.
		reported := 0
		f.be(func(context.Context) error {
			if f.calls[len(f.calls)-1].ops[0].Verb == core.Refund {
				if reported++; reported == 4 {
					return errDown
				}
			}
			return nil
		})

		time.Sleep(400 * ms)
		synctest.Wait()

		// Three are done. The other seven wait on.
		if got := s.Stats(); got.State != Open && got.Waits != 7 {
			t.Errorf("%+v", got)
		}

		// None is lost, and none is left.
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.Stats(); got.State != Closed || got.Waits != 0 || got.Lost != 0 {
			t.Errorf("%+v", got)
		}

		if got := remaining(t, f, undone[0]); got != 10 {
			t.Errorf("%d remain", got)
		}
	})
}

func TestRefundSplitsMixedSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, fallback := newFake(), memory()
		s := over(t, f, Options{Fallback: fallback})
		defer s.Close()

		// One unit is charged by each store, two outages apart.
		a, b, c := take(t, "a", "5/1h", 2), take(t, "b", "6/1h", 2), take(t, "c", "7/1h", 2)
		da := one(t, s, a)
		openNow(t, s, f)
		db := one(t, s, b)
		comeBack(t, s, f)

		// The step gives both back and takes from a third key: each refund goes to the store that
		// charged, and the Take to the primary.
		out := make([]core.Decision, 3)
		if err := s.Apply(t.Context(), []core.Op{undo(b, db), undo(a, da), c}, out); err != nil {
			t.Fatal(err)
		}

		if out[0].Remaining != 6 || out[1].Remaining != 5 || out[2].Remaining != 5 {
			t.Errorf("%+v", out)
		}

		if got := remaining(t, fallback, c); got != 5 {
			t.Errorf("%d remain in the fallback", got)
		}
	})
}
