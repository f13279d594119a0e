package failover

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
)

// brief has a limit of ten units for each algorithm, and a time after which they are back.
// A sliding window needs one segment more than its period.
var brief = map[string]time.Duration{
	"10/1s": 2 * time.Second, "10/1s fixed-window": 2 * time.Second, "10/1s sliding-log": 2 * time.Second,
	"10/1s sliding-window": 2 * time.Second, "10/1s token-bucket": 2 * time.Second, "10/day": 24 * time.Hour,
}

// granted takes units until one is refused, and returns what was granted.
func granted(t testing.TB, s core.Store, op core.Op) (list []core.Op) {
	t.Helper()
	for {
		d := one(t, s, op)
		if !d.Allowed {
			return list
		}
		list = append(list, undo(op, d))
	}
}

// Slow requests end in an outage. Time has given their units back before, so their
// refunds give nothing back.
func TestRefundInAnOutageOfUnitsThatCameBack(t *testing.T) {
	for text, later := range brief {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, Options{Fallback: memory()})
				defer s.Close()

				op := take(t, "k", text, 1)

				// Six rounds use up the limit of ten, and in each pause its units come back, while
				// the requests go on.
				var slow []core.Op
				for range 6 {
					slow = append(slow, granted(t, s, op)...)
					time.Sleep(later)
				}

				if len(slow) != 60 {
					t.Fatalf("%d were granted", len(slow))
				}

				// The fallback has ten units of its own, and uses them.
				openNow(t, s, f)
				if n := admitted(t, s, op); n != 10 {
					t.Errorf("%d by the fallback", n)
				}

				// Were one of the sixty refunds to give a unit back, the key would get an eleventh.
				for i, refund := range slow {
					one(t, s, refund)
					if n := admitted(t, s, op); n != 0 {
						t.Fatalf("%d more after refund %d", n, i)
					}
				}
			})
		})
	}
}

// The same while the primary is up: the copies of later charges stay.
func TestLateRefundLeavesTheCopiesOfOtherCharges(t *testing.T) {
	for text, later := range brief {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, threeOf(Options{Fallback: memory()}))
				defer s.Close()

				op := take(t, "k", text, 1)

				// Ten requests are slow, and their units come back before they end.
				slow := granted(t, s, op)
				time.Sleep(later)

				// Three later requests use the part of this instance.
				for range 3 { // the part of 10
					one(t, s, op)
				}

				for _, refund := range slow {
					one(t, s, refund)
				}

				// The refunds of the slow ones must not take away the copies of the three.
				openNow(t, s, f)
				if n := admitted(t, s, op); n != 0 {
					t.Errorf("%d by the fallback", n)
				}
			})
		})
	}
}

// A charge that did not fit the part has no copy, so its refund gives nothing back.
func TestRefundOfAChargeWithoutACopy(t *testing.T) {
	for _, text := range rates {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, threeOf(Options{Fallback: memory()}))
				defer s.Close()

				op := take(t, "k", text, 1)

				// The part is four of twelve, so the last two of six have no copy.
				var refunds []core.Op
				for range 6 { // two more than the part
					refunds = append(refunds, undo(op, one(t, s, op)))
				}

				openNow(t, s, f)
				for _, refund := range refunds[4:] {
					one(t, s, refund)
				}
				if n := admitted(t, s, op); n != 0 {
					t.Errorf("%d by the fallback", n)
				}

				// The fourth has one, and its refund gives its unit back.
				one(t, s, refunds[3])
				if n := admitted(t, s, op); n != 1 {
					t.Errorf("%d by the fallback after the refund of a copy", n)
				}
			})
		})
	}
}

// A copy that is forgotten stays charged until time passes. The bound is the one that
// docs/promises.md names.
func TestCopiesAreBounded(t *testing.T) {
	const bound = 8192

	// A charge is remembered while fewer than the bound have followed it.
	for _, between := range []int{bound - 1, bound} {
		t.Run(fmt.Sprint(between), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, Options{Fallback: memory()})
				defer s.Close()

				op, other := take(t, "k", "1/1h", 1), take(t, "other", "100000/1h", 1)
				refund := undo(op, one(t, s, op))

				for range between {
					one(t, s, other)
				}

				// Within the bound the refund finds its copy; beyond it the unit stays charged.
				openNow(t, s, f)
				one(t, s, refund)
				if n := admitted(t, s, op); n != bound-between {
					t.Errorf("%d by the fallback", n)
				}
			})
		})
	}
}

func TestCopiesAreRememberedWithoutAllocations(t *testing.T) {
	var c copies
	op, d := take(t, "k", "1/1h", 1), core.Decision{At: 5}

	c.add(c.hash(op.Key), 3, &d)
	if n := testing.AllocsPerRun(100, func() { c.add(c.hash(op.Key), 3, &d) }); n != 0 {
		t.Errorf("%v allocations", n)
	}

	// A copy is found by the instant and the mark of its charge.
	op.At, op.Origin = 3, 2
	if got, ok := c.find(&op); !ok || got != d {
		t.Errorf("%+v, %t", got, ok)
	}

	// A place that another goroutine writes to is passed over rather than waited for.
	c.list[1].busy.Store(true)
	if _, ok := c.find(&op); ok {
		t.Error("found while another goroutine writes")
	}

	c.latest.Store(0)
	if mark := c.add(c.hash(op.Key), 3, &d); mark != 0 {
		t.Errorf("mark %d while another goroutine writes", mark)
	}
}

// One store is the primary of another, or its fallback. Each refund reaches the
// store that charged.
func TestStoreOverAnother(t *testing.T) {
	const text = "12/1h sliding-log"
	op := take(t, "k", text, 1)

	// The first: the fallback is itself a store with a primary and a fallback, so three stores
	// charge a unit each.
	synctest.Test(t, func(t *testing.T) {
		a, b := newFake(), newFake()
		inner := over(t, b, Options{Fallback: memory()})
		outer := over(t, a, Options{Fallback: inner})
		defer inner.Close()
		defer outer.Close()

		openNow(t, outer, a)
		byB := undo(op, one(t, outer, op))
		openNow(t, inner, b)
		byMemory := undo(op, one(t, outer, op))

		comeBack(t, inner, b)
		comeBack(t, outer, a)
		byA := undo(op, one(t, outer, op))

		// The refunds come in another order than the charges, when all is well again.
		for _, refund := range []core.Op{byMemory, byB, byA} {
			one(t, outer, refund)
		}

		time.Sleep(time.Second) // refunds of units that were paid wait for the background
		synctest.Wait()
		if x, y, z := remaining(t, a, op), remaining(t, b, op), remaining(t, inner.mirror.fallback, op); x != 12 ||
			y != 12 || z != 12 {
			t.Errorf("%d, %d and %d remain", x, y, z)
		}
	})

	// The second: the primary is itself a store with a fallback.
	synctest.Test(t, func(t *testing.T) {
		a := newFake()
		inner := over(t, a, Options{Fallback: memory()})
		outer := over(t, inner, Options{Fallback: memory()})
		defer inner.Close()
		defer outer.Close()

		byA := undo(op, one(t, outer, op))
		openNow(t, inner, a)
		byInner := undo(op, one(t, outer, op))

		// The one in the inner outage is given back in it, the other after it.
		one(t, outer, byInner)
		comeBack(t, inner, a)
		one(t, outer, byA)

		if x, y, z := remaining(t, a, op), remaining(t, inner.mirror.fallback, op),
			remaining(t, outer.mirror.fallback, op); x != 12 || y != 12 || z != 12 {
			t.Errorf("%d, %d and %d remain", x, y, z)
		}
	})
}

func TestStoreOverTwoOthersIsAMistake(t *testing.T) {
	inner := over(t, memory(), Options{Fallback: memory()})
	middle := over(t, memory(), Options{Fallback: inner})
	for _, primary := range []core.Store{middle, middle.Strict(), middle.Fallback()} {
		_, err := New(primary, Options{})
		want := "failover: 3 stores of this package are one over another, more than 2"
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A decision says that the fallback made it, and the store says why.
func TestDecisionOfTheFallbackSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		defer s.Close()

		op := take(t, "k", "12/1h", 1)
		if d := one(t, s, op); d.Fallback || s.Cause() != nil {
			t.Errorf("by the primary: %+v, %v", d, s.Cause())
		}

		// From the first failure on the fallback decides, and the cause says why.
		f.fall()
		d := one(t, s, op)
		if want := "the fallback of the store decides: down"; !d.Fallback || s.Cause() == nil ||
			s.Cause().Error() != want {
			t.Errorf("by the fallback: %+v, %v", d, s.Cause())
		}

		// The refund of its units is its own too.
		if back := one(t, s, undo(op, d)); !back.Fallback {
			t.Errorf("refund: %+v", back)
		}
	})
}
