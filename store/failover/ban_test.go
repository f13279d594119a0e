package failover

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
)

// underBan is a Take of one unit under a Ban of an hour after two strikes.
func underBan(t testing.TB, key, text string) core.Op {
	op := take(t, key, text, 1)
	op.Ban = &core.Ban{Strikes: 2, Within: time.Minute, For: time.Hour, Max: 4 * time.Hour}
	return op
}

// banNow has the primary ban the key of op.
func banNow(t testing.TB, s core.Store, op core.Op) {
	t.Helper()
	admitted(t, s, op)
	if d := one(t, s, op); !d.Banned || d.Fallback {
		t.Fatalf("%+v", d)
	}
}

func TestBanOfThePrimaryHoldsInTheFallback(t *testing.T) {
	for _, text := range append(rates, "1000000/1s") {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, threeOf(Options{Fallback: memory()}))
				defer s.Close()

				op := underBan(t, "k", text)

				// The ban of an hour is imposed by another instance, and this one hears of it from
				// a decision.
				impose := op
				impose.Verb = core.Impose
				one(t, f.Store, impose) // by another instance

				if d := one(t, s, op); !d.Banned || d.Fallback {
					t.Fatalf("%+v", d)
				}

				// Ten minutes later the primary goes away: fifty minutes of the ban are left.
				time.Sleep(10 * time.Minute)
				openNow(t, s, f)
				if d := one(t, s, op); d.Allowed || !d.Banned || !d.Fallback || d.RetryAfter != 50*time.Minute {
					t.Errorf("in the outage: %+v", d)
				}

				if d := one(t, s, underBan(t, "other", text)); !d.Allowed || d.Banned {
					t.Errorf("another key: %+v", d)
				}

				// The fallback's own ban ends when that of the primary would have.
				time.Sleep(50 * time.Minute)
				if d := one(t, s, op); !d.Allowed || d.Banned || !d.Fallback {
					t.Errorf("after the ban: %+v", d)
				}
			})
		})
	}
}

// A ban that began in an outage does not hide a longer one of the primary.
func TestBanOfThePrimaryIsLongerThanThatOfTheFallback(t *testing.T) {
	for name, row := range map[string]struct{ fallback, primary time.Duration }{
		"the primary's is longer":  {5 * time.Minute, 50 * time.Minute},
		"the fallback's is longer": {50 * time.Minute, 5 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, fallback := newFake(), memory()
			s := over(t, f, Options{Fallback: fallback})
			defer s.Close()

			impose := func(there core.Store, length time.Duration) core.Op {
				op := underBan(t, "k", "12/1h fixed-window")
				ban := *op.Ban
				ban.For = length
				op.Verb, op.Ban = core.Impose, &ban
				one(t, there, op)
				return op
			}

			// Both stores have a ban of the key, of five and fifty minutes either way round.
			impose(fallback, row.fallback)
			impose(f.Store, row.primary)

			op := underBan(t, "k", "12/1h fixed-window")
			if d := one(t, s, op); !d.Banned || d.Fallback {
				t.Fatalf("%s: %+v", name, d)
			}

			openNow(t, s, f)
			if d := one(t, s, op); !d.Banned || !d.Fallback || d.RetryAfter != 50*time.Minute {
				t.Errorf("%s: in the outage %+v", name, d)
			}
		})
	}
}

// The fallback bans by itself, and the primary decides by its own state when it is back.
func TestBanOfTheFallbackEndsWithTheOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, threeOf(Options{Fallback: memory()}))
		defer s.Close()

		openNow(t, s, f)
		op := underBan(t, "k", "12/1h fixed-window")

		// The part of twelve units for one of three instances.
		if n := admitted(t, s, op); n != 4 {
			t.Errorf("%d admitted, want the part", n)
		}
		if d := one(t, s, op); !d.Banned || !d.Fallback {
			t.Errorf("%+v", d)
		}

		f.rise()
		time.Sleep(time.Second)
		if d := one(t, s, op); !d.Allowed || d.Banned || d.Fallback {
			t.Errorf("when the primary is back: %+v", d)
		}
	})
}

// A Lift ends the ban in both stores. In an outage it ends that of the fallback at once, and
// waits for the primary.
func TestLiftEndsTheBanInBothStores(t *testing.T) {
	for name, outage := range map[string]bool{"while the primary is well": false, "in an outage": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := over(t, f, threeOf(Options{Fallback: memory()}))
				defer s.Close()

				op := underBan(t, "k", "12/1h fixed-window")
				banNow(t, s, op)
				lift, peek := op, op
				lift.Verb, peek.Verb = core.Lift, core.Peek

				// The Lift comes before the outage or in it.
				if outage {
					openNow(t, s, f)
				}
				one(t, s, lift)

				if !outage {
					openNow(t, s, f)
				}
				if d := one(t, s, peek); d.Banned || !d.Fallback {
					t.Errorf("in the outage: %+v", d)
				}

				// The Lift that was sent in the outage has reached the primary by now.
				f.rise()
				time.Sleep(time.Second)
				if d := one(t, s, peek); d.Banned || d.Fallback {
					t.Errorf("when the primary is back: %+v", d)
				}
			})
		})
	}
}
