package failover

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
)

// threeOf has three instances share the limits.
func threeOf(o Options) Options {
	o.Instances = func() int { return 3 }
	return o
}

// admitted takes units of a key until one is refused, and returns their number.
func admitted(t testing.TB, s core.Store, op core.Op) int {
	t.Helper()
	for n := 0; ; n++ {
		if !one(t, s, op).Allowed {
			return n
		}
	}
}

var rates = []string{
	"12/1h", "12/1h burst=12", "12/1h fixed-window", "12/1h fixed-window aligned", "12/1h sliding-log",
	"12/1h sliding-window", "12/1h token-bucket", "12/day",
}

func TestFallbackDecidesACallThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, threeOf(Options{Fallback: memory()}))

		f.fall()
		op := take(t, "k", "12/1h fixed-window", 1)

		// The limit of twelve is shared by three.
		for i := range int64(4) { // the breaker is closed still
			if d := one(t, s, op); !d.Allowed || d.Remaining != 3-i {
				t.Fatalf("%+v", d)
			}
		}

		if d := one(t, s, op); d.Allowed || d.RetryAfter <= 59*time.Minute {
			t.Errorf("%+v", d)
		}

		// The refusal counts as a decision of the fallback too.
		if s.Stats().Local != 5 {
			t.Errorf("%+v", s.Stats())
		}
	})
}

func TestFallbackGrantsANewKeyItsPart(t *testing.T) {
	for _, text := range append(rates, "12 concurrent ttl=1h") {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, threeOf(Options{Fallback: memory()}))
				defer s.Close()
				openNow(t, s, f)

				// Each Take is of another lease, so that leases are counted and not renewed.
				op, n := take(t, "k", text, 1), 0
				for ; ; n++ {
					op.Lease = string(rune('a' + n))
					if !one(t, s, op).Allowed {
						break
					}
				}

				if n != 4 {
					t.Errorf("%d of 12 by one of three", n)
				}
			})
		})
	}
}

// Where the number of instances is above the quota, or not known, each instance grants
// one unit.
func TestFallbackGrantsOneUnitWhereAPartIsLess(t *testing.T) {
	for _, n := range []int{13, UnknownInstances} {
		for _, text := range append(rates, "12/1h token-bucket burst=5") {
			t.Run(fmt.Sprint(text, " ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFake()
					s := over(t, f, Options{Fallback: memory(), Instances: func() int { return n }})
					defer s.Close()
					openNow(t, s, f)

					// One unit, whatever the burst of the whole limit is.
					if got := admitted(t, s, take(t, "k", text, 1)); got != 1 {
						t.Errorf("%d of 12 by one of %d", got, n)
					}
				})
			})
		}
	}
}

func TestFallbackCountsWhatThePrimaryAdmits(t *testing.T) {
	for _, text := range rates {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, threeOf(Options{Fallback: memory()}))
				defer s.Close()

				// What this instance had from the primary before counts towards its part.
				op := take(t, "k", text, 1)
				for range 3 {
					one(t, s, op)
				}

				openNow(t, s, f)

				if n := admitted(t, s, op); n != 1 {
					t.Errorf("%d more of a part of 4 after 3", n)
				}
			})
		})
	}
}

func TestFallbackCountsUnitsOfUpToTakes(t *testing.T) {
	for _, text := range rates {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, fallback := newFake(), memory()
				s := over(t, f, Options{Fallback: fallback})
				defer s.Close()

				// The primary has five of twelve units left, and the UpTo Take gets those: the copy
				// is of five and not of nine.
				op := take(t, "k", text, 7)
				one(t, s, op)
				op.UpTo, op.Cost = true, 9
				if d := one(t, s, op); !d.Allowed || d.Taken != 5 || remaining(t, fallback, op) != 0 {
					t.Errorf("%+v, and %d remain in the fallback", d, remaining(t, fallback, op))
				}

				// The fallback alone gives the other key the nine that it asks for.
				f.fall()
				other := op
				other.Key = "j"
				if d := one(t, s, other); d.Taken != 9 || d.Remaining != 3 {
					t.Errorf("by the fallback: %+v", d)
				}
			})
		})
	}
}

// The part of 4 goes into debt by 4 at most, so a copy may be smaller than the debit.
func TestFallbackCountsDebits(t *testing.T) {
	for _, text := range rates {
		op := take(t, "k", text, 3)
		if op.Limit.MaxDebt() == 0 {
			continue
		}
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, fallback := newFake(), memory()
				s := over(t, f, threeOf(Options{Fallback: fallback}))
				defer s.Close()

				// The part of four has one left after a debit of three.
				part := op
				part.Limit = op.Limit.Part(3)
				op.Verb = core.Debit
				one(t, s, op)
				if n := remaining(t, fallback, part); n != 1 {
					t.Errorf("%d of 4 remain in the fallback after a debit of 3", n)
				}

				// The primary has nine left and goes into debt by twelve, so it charges 21 of 100.
				// The part cannot follow.
				large := op
				large.Cost = 100
				d := one(t, s, large)
				if d.Taken != 21 || remaining(t, fallback, part) != 0 {
					t.Errorf("%+v, and %d remain in the fallback", d, remaining(t, fallback, part))
				}

				// The refund takes back from the copy what was copied, and no more.
				one(t, s, undo(large, d))
				if n, m := remaining(t, f, op), remaining(t, fallback, part); n != 9 || m != 1 {
					t.Errorf(
						"after the refund of the second %d remain at the primary and %d in the fallback, want 9 and 1",
						n, m)
				}
			})
		})
	}
}

// Another instance has used up the limit but for one unit.
func TestFallbackKnowsWhatADebitLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, threeOf(Options{Fallback: memory()}))
		defer s.Close()

		// Another instance has used eleven, and the debit takes the last.
		one(t, f, take(t, "k", "12/1h", 11))
		op := take(t, "k", "12/1h", 1)
		op.Verb = core.Debit
		one(t, s, op)

		openNow(t, s, f)
		op.Verb = core.Take

		// The part would have three more, but the limit is known to be used up.
		if n := admitted(t, s, op); n != 0 {
			t.Errorf("%d more of a limit that is used up", n)
		}
	})
}

// A debit in an outage is charged to the fallback, and refunded there.
func TestFallbackCarriesOutDebits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, threeOf(Options{Fallback: memory()}))
		defer s.Close()
		openNow(t, s, f)

		// The part of four can owe four more: eight units at most are charged.
		op := take(t, "k", "12/1h", 9)
		op.Verb = core.Debit
		d := one(t, s, op)
		if d.Taken != 8 || !d.Fallback {
			t.Errorf("%+v, want 8 units of the fallback", d)
		}

		// The units are those of the fallback, so the primary gets nothing back.
		comeBack(t, s, f)
		one(t, s, undo(op, d))
		openNow(t, s, f)

		op.Verb, op.Cost = core.Take, 1
		if n := admitted(t, s, op); n != 4 {
			t.Errorf("%d of 4 after the refund", n)
		}
	})
}

// Other instances have used up the limit. This instance knows it by a refusal alone,
// or by how little is left.
func TestFallbackGrantsNothingOfAUsedUpLimit(t *testing.T) {
	for _, text := range rates {
		for used, want := range map[int64]int{12: 0, 10: 1} {
			t.Run(text, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFake()
					s := over(t, f, threeOf(Options{Fallback: memory()}))
					defer s.Close()

					// With two units left, one goes to this instance now and one is what the
					// fallback may still grant.
					one(t, f, take(t, "k", text, used)) // by another instance
					op := take(t, "k", text, 1)
					one(t, s, op)

					openNow(t, s, f)
					if n := admitted(t, s, op); n != want {
						t.Errorf("%d more after %d of 12, want %d", n, used, want)
					}
				})
			})
		}
	}
}

func TestFallbackIsNotChargedForRefusedSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		fallback := memory()
		s := over(t, f, Options{Fallback: fallback})

		// The first rule would admit, and the second can never: two units of one.
		a, b := take(t, "a", "10/1h", 3), take(t, "b", "1/1h", 2)
		out := make([]core.Decision, 2)
		if err := s.Apply(t.Context(), []core.Op{a, b}, out); err != nil || !out[0].Allowed || out[1].Allowed {
			t.Fatal(out, err)
		}

		if got := remaining(t, fallback, a); got != 10 {
			t.Errorf("%d remain", got)
		}
	})
}

func TestFallbackIsNotChargedForSoftRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, fallback := newFake(), memory()
		s := over(t, f, Options{Fallback: fallback})

		// One unit of the Soft rule is gone, so its five do not fit; the step goes on without them.
		one(t, f, take(t, "b", "5/1h", 1))
		a, b := take(t, "a", "10/1h", 3), take(t, "b", "5/1h", 5)
		b.Soft = true
		out := make([]core.Decision, 2)
		if err := s.Apply(t.Context(), []core.Op{a, b}, out); err != nil || !out[0].Allowed || out[1].Allowed {
			t.Fatal(out, err)
		}

		// The Soft op that was refused leaves in the fallback what the primary still has, which is
		// four.
		if a, b := remaining(t, fallback, a), remaining(t, fallback, b); a != 7 || b != 4 {
			t.Errorf("%d and %d remain, want 7 and 4", a, b)
		}
	})
}

func TestFallbackMayGrantALeaseRefusedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, threeOf(Options{Fallback: memory()}))

		const text = "3 concurrent ttl=1h"

		// All three leases are held elsewhere.
		for _, id := range []string{"a", "b", "c"} {
			one(t, f, lease(t, id, text)) // of other instances
		}
		if one(t, s, lease(t, "d", text)).Allowed {
			t.Fatal("one too many")
		}

		// A lease is not counted as used up by the refusal: leases end at any time, so the part of
		// one is granted.
		openNow(t, s, f)
		if !one(t, s, lease(t, "e", text)).Allowed || one(t, s, lease(t, "f", text)).Allowed {
			t.Error("not one lease of a part of one")
		}
	})
}

func TestFallbackIsUnchangedByAPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		fallback := newFake()
		s := over(t, f, Options{Fallback: fallback})
		one(t, f, take(t, "k", "10/1h", 9))
		if got := remaining(t, s, take(t, "k", "10/1h", 1)); got != 1 {
			t.Errorf("%d remain", got)
		}
		if calls := fallback.seen(); len(calls) != 0 {
			t.Errorf("%+v", calls)
		}
	})
}

func TestFallbackFailureLeavesThePrimarysDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, fallback := newFake(), newFake()
		s := over(t, f, Options{Fallback: fallback})
		fallback.fall()
		if d := one(t, s, take(t, "k", "10/1h", 1)); d.Remaining != 9 {
			t.Errorf("%+v", d)
		}
		f.fall()
		if _, err := try(s, take(t, "k", "10/1h", 1)); !errors.Is(err, errDown) {
			t.Error(err)
		}
	})
}

func TestFallbackRefusesCostsBeyondThePart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, threeOf(Options{Fallback: memory()}))

		// Beyond the part of four, waiting would not help, while another instance or the primary
		// might admit it.
		openNow(t, s, f)
		for _, cost := range []int64{5, 12, 13} { // never by this instance
			if d := one(t, s, take(t, "k", "12/1h", cost)); d.Allowed || d.RetryAfter != core.Never || !d.Fallback {
				t.Errorf("cost %d: %+v", cost, d)
			}
		}

		if d := one(t, s, take(t, "k", "12/1h", 4)); !d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}

// However often the primary comes and goes, a key is granted the quota once by
// it, and once more the parts of the instances that it does not hear of.
func TestFallbackGrantsTheLimitOnceMoreAtMost(t *testing.T) {
	for _, text := range []string{"12/1h", "12/1h fixed-window", "12/1h sliding-log", "12/1h sliding-window",
		"12/1h token-bucket", "12/day"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				var fleet []*Store
				for range 3 {
					s := over(t, f, threeOf(Options{Fallback: memory()}))
					defer s.Close()
					fleet = append(fleet, s)
				}

				// The primary has granted all, and five units come back, which the instances do not
				// hear of.
				op, n := take(t, "k", text, 1), 0
				n += admitted(t, fleet[0], op) // 12 by the primary
				n -= 5
				one(t, f, core.Op{Verb: core.Reset, Rule: op.Rule, Key: op.Key, Limit: op.Limit})
				one(t, f, take(t, "k", text, 7)) // as if 5 had come back

				for range 4 {
					// Each instance in turn has an outage, four times over.
					for _, s := range fleet {
						openNow(t, s, f)
						n += admitted(t, s, op)
					}

					f.rise()
					time.Sleep(time.Second)
					synctest.Wait()
					n += admitted(t, fleet[1], op)
				}
				// The first instance knew that there was nothing left. The second has told the
				// primary of its 4 units, and the third has not.
				if n != 12+4 {
					t.Errorf("%d", n)
				}
			})
		})
	}
}

func TestPartsCacheIsBounded(t *testing.T) {
	// More limits than the cache holds: those beyond it are reckoned anew each time.
	var s shares
	for quota := range int64(maxShares + 10) {
		l := core.Limit{Quota: 10 * (quota + 1), Period: time.Second}
		for range 2 {
			if got := s.part(l, 10); got.Quota != quota+1 {
				t.Fatalf("a part of %d is %d", l.Quota, got.Quota)
			}
		}
	}

	if got := len(s.known.Load().parts); got != maxShares {
		t.Errorf("%d are known", got)
	}

	// The number of instances changes the parts: what is known is dropped.
	if got := s.part(core.Limit{Quota: 10, Period: time.Second}, 2); got.Quota != 5 || len(s.known.Load().parts) != 1 {
		t.Errorf("%s, %d are known", got, len(s.known.Load().parts))
	}

	if allocs := testing.AllocsPerRun(100, func() {
		s.part(core.Limit{Quota: 10, Period: time.Second}, 2)
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestPartOfFewerThanOneInstance(t *testing.T) {
	for _, n := range []int{-1, 0, 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, Options{Fallback: memory(), Instances: func() int { return n }})
				openNow(t, s, f)
				if got := remaining(t, s, take(t, "k", "10/1h", 1)); got != 10 {
					t.Errorf("%d remain", got)
				}
			})
		})
	}
}

// Where the primary has refused a Take because nothing is left, the copy takes the last units
// of the fallback, one in a step that it refuses if there is none. Where units are left, or the
// key may be banned, it is a Peek.
func TestCopyOfARefusal(t *testing.T) {
	rows := map[string]struct {
		used, cost int64
		verb       core.Verb
		copied     int64
	}{
		"nothing is left":     {12, 1, core.Take, 1},
		"nothing of many":     {12, 5, core.Take, 1},
		"too little is left":  {10, 5, core.Peek, 0},
		"more than there are": {0, 13, core.Peek, 0},
	}

	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, fallback := newFake(), newFake()
				s := over(t, f, Options{Fallback: fallback})
				defer s.Close()
				one(t, f, take(t, "k", "12/1h", row.used))

				// The copy is what the fallback was asked first.
				d := one(t, s, take(t, "k", "12/1h", row.cost))
				c := fallback.seen()[0].ops[0]
				if d.Allowed || d.Origin != 0 || c.Verb != row.verb || c.Cost != row.copied {
					t.Errorf("%+v, the copy is %+v", d, c)
				}

				// It leaves in the fallback no more than is left at the primary.
				if n := remaining(t, fallback, c); n != 12-row.used {
					t.Errorf("%d remain in the fallback", n)
				}
			})
		})
	}
}
