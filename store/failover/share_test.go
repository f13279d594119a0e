package failover

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

func TestALimitIsDividedByTheInstances(t *testing.T) {
	rows := []struct {
		limit string
		n     int64
		want  string
	}{
		{"100/1m", 4, "25/1m"},
		{"100/1m", 3, "33/1m"},
		{"2/1m", 3, "1/1m"},
		{"100/1m burst=7", 2, "50/1m burst=3"},
		{"100/1m burst=1", 2, "50/1m burst=1"},
		{"10/1s token-bucket burst=50", 5, "2/1s token-bucket burst=10"},
		{"240/1h sliding-window segments=60", 2, "120/1h sliding-window segments=60"},
		{"9/1h fixed-window aligned", 3, "3/1h fixed-window aligned"},
		{"5/1m sliding-log", 2, "2/1m sliding-log"},
		{"20 concurrent ttl=30s", 6, "3 concurrent ttl=30s"},
		{"5/400d burst=5", 4, "1/400d burst=1"},
		{"5/80d token-bucket burst=25", 4, "1/80d token-bucket burst=1"},
	}
	for _, row := range rows {
		if got := divide(limit(t, row.limit), row.n); got != limit(t, row.want) {
			t.Errorf("%s by %d is %s, want %s", row.limit, row.n, got, row.want)
		}
	}
}

func TestAPartIsValidAndNoLargerAndThePartsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := core.Limit{
			Algorithm: core.Algorithm(rapid.IntRange(0, 5).Draw(t, "algorithm")),
			Quota:     rapid.Int64Range(1, 1<<rapid.IntRange(0, 50).Draw(t, "size")).Draw(t, "quota"),
			Period:    time.Duration(rapid.Int64Range(1000, 400*86400*1e6).Draw(t, "period")) * time.Microsecond,
		}
		if l.Algorithm == core.GCRA || l.Algorithm == core.TokenBucket {
			l.Burst = rapid.Int64Range(0, 1<<20).Draw(t, "burst")
		}
		if l.Validate() != nil {
			t.Skip("not valid")
		}
		n := rapid.Int64Range(1, 5000).Draw(t, "instances")
		part := divide(l, n)
		if err := part.Validate(); err != nil {
			t.Fatalf("%s by %d is %s: %v", l, n, part, err)
		}
		if part.Quota > max(1, l.Quota/n) || part.Capacity() > max(1, l.Capacity()/n) {
			t.Fatalf("%s by %d is %s", l, n, part)
		}
	})
}

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
