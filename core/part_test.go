package core_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

func TestLimitPart(t *testing.T) {
	rows := []struct {
		limit string
		n     int64
		want  string
	}{
		// Quotas are rounded down, but to no less than one unit.
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

		// Debts are shared out too. Where a part would be paid back in more than 400 days it has no
		// debt, and where its burst would take longer it has a smaller one.
		{"100/1m debt=50", 4, "25/1m debt=12"},
		{"100/1m fixed-window debt=3", 4, "25/1m fixed-window debt=1"},
		{"5/200d burst=5 debt=5", 4, "1/200d burst=1 debt=1"},
		{"5/400d burst=1 debt=4", 5, "1/400d burst=1"},
		{"5/400d burst=5", 4, "1/400d burst=1"},
		{"5/80d token-bucket burst=25", 4, "1/80d token-bucket burst=1"},

		// A third of ten million a second is 3333333, which has no divisor in common with a second:
		// its units could not be counted exactly.
		{"10000000/1s", 3, "3333330/1s"},
		{"100000000/1m", 3, "33333330/1m"},
		{"500000000/24h", 7, "71428570/24h"},
	}

	for _, row := range rows {
		if got := mustParse(t, row.limit).Part(row.n); got != mustParse(t, row.want) {
			t.Errorf("%s by %d is %s, want %s", row.limit, row.n, got, row.want)
		}
	}
}

func TestLimitPartIsValidAndPartsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Many of the limits drawn have numbers near 2^50, where a quotient could overflow what is
		// valid.
		l := core.Limit{
			Algorithm: core.Algorithm(rapid.IntRange(0, 5).Draw(t, "algorithm")),
			Quota:     rapid.Int64Range(1, 1<<rapid.IntRange(0, 50).Draw(t, "size")).Draw(t, "quota"),
			Period:    time.Duration(rapid.Int64Range(1000, 400*86400*1e6).Draw(t, "period")) * time.Microsecond,
		}
		if l.Algorithm == core.GCRA || l.Algorithm == core.TokenBucket {
			l.Burst = rapid.Int64Range(0, 1<<20).Draw(t, "burst")
		}
		if l.MaxDebt() > 0 {
			l.Debt = rapid.Int64Range(0, 1<<20).Draw(t, "debt")
		}

		if l.Validate() != nil {
			t.Skip("not valid")
		}

		n := rapid.Int64Range(1, 5000).Draw(t, "instances")
		part := l.Part(n)
		if err := part.Validate(); err != nil {
			t.Fatalf("%s by %d is %s: %v", l, n, part, err)
		}

		// All parts together allow no more than the whole, unless each has the least of one unit.
		if l.Debt > 0 && part.Debt > max(1, l.Debt/n) {
			t.Fatalf("%s by %d is %s", l, n, part)
		}
		if part.Quota > max(1, l.Quota/n) || part.Capacity() > max(1, l.Capacity()/n) {
			t.Fatalf("%s by %d is %s", l, n, part)
		}
	})
}
