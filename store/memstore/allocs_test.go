//go:build !race

package memstore

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/core"
)

// Under the race detector a sync.Pool drops some of what is put into it.
func TestKnownKeyAllocatesNothing(t *testing.T) {
	// Both outcomes of each algorithm: ample limits admit every Take, and those of one unit refuse
	// all but the first.
	ample := []core.Limit{
		limit("1000000/1h"), limit("1000000/1h fixed-window"), limit("1000000/1h sliding-window"),
		limit("1000000/1h token-bucket"), limit("1/1h"), limit("1/1h sliding-log"), limit("1 concurrent ttl=1h"),
		limit("1000000/month tz=Europe/Berlin"),
	}
	for _, l := range ample {
		s, _ := newStore(t, 0)
		one := []core.Op{takes("key", l)}

		// A lease that is held is renewed, so another caller's has to be refused.
		if l.Algorithm == core.Concurrency {
			do(t, s, one...)
			one[0].Lease = leaseID(1)
		}

		// A Peek beside it leads to the general path; three Takes are decided together on the fast
		// one.
		two := []core.Op{one[0], peeks("other", each[0])}
		three := []core.Op{one[0], takes("second", ample[0]), takes("third", ample[0])}
		do(t, s, three[1])
		do(t, s, three[2])

		// As many as the fast path decides.
		var most []core.Op
		for i := range maxFastTakes {
			most = append(most, takes(fmt.Sprint("of many ", i), ample[0]))
			do(t, s, most[i])
		}

		out := make([]core.Decision, maxFastTakes)
		for name, ops := range map[string][]core.Op{"one op": one, "two ops": two, "three ops": three, "most": most} {
			n := testing.AllocsPerRun(1000, func() {
				if err := s.Apply(t.Context(), ops, out); err != nil {
					t.Fatal(err)
				}
			})

			// The general path needs the leases as core.Lease, and all ids in one text.
			want := 0.0
			if l.Leased() && name == "two ops" {
				want = 2
			}
			if n != want {
				t.Errorf("%v, %s: %v allocations, want %v", l, name, n, want)
			}
		}
	}
}

func TestPreparedAllocatesNothing(t *testing.T) {
	for _, n := range []int{1, 2, maxFastTakes} {
		for _, text := range []string{"1000000/1h", "1/1h", "1000000/1h sliding-window"} {
			s, _ := newStore(t, 0)
			var ops []core.Op
			for i := range n {
				ops = append(ops, ruled(fmt.Sprint("rule", i), "", text))
			}
			p, out := prepare(t, s, ops...), make([]core.Decision, n)
			if got := testing.AllocsPerRun(1000, func() {
				if err := p.Take("key", 1, out); err != nil {
					t.Fatal(err)
				}
			}); got != 0 {
				t.Errorf("%d rules of %s: %v allocations", n, text, got)
			}
		}
	}
}
