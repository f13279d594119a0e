package failover

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
)

func TestPartsAreRememberedForOneNumberOfInstancesAndNotWithoutBound(t *testing.T) {
	var s shares
	for quota := range int64(maxShares + 10) {
		l := core.Limit{Quota: 10 * (quota + 1), Period: time.Second}
		for range 2 {
			if got := s.part(l, 10); got.Quota != quota+1 {
				t.Fatalf("a part of %d is %d", l.Quota, got.Quota)
			}
		}
	}
	if got := len(s.known.Load().of); got != maxShares {
		t.Errorf("%d are known", got)
	}
	if got := s.part(core.Limit{Quota: 10, Period: time.Second}, 2); got.Quota != 5 || len(s.known.Load().of) != 1 {
		t.Errorf("%s, %d are known", got, len(s.known.Load().of))
	}
	if allocs := testing.AllocsPerRun(100, func() { s.part(core.Limit{Quota: 10, Period: time.Second}, 2) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestFewerThanOneInstanceIsOne(t *testing.T) {
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
