package whatif

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

var start = time.Date(2026, 3, 1, 11, 55, 0, 0, time.UTC) // of the first minute

const (
	lead = 5  // minutes
	all  = 65 // minutes, with those
)

// call is a request.
type call struct {
	at  time.Duration // from start on; negative before the first minute
	key string
}

// truth decides about the requests by the engine, and counts those that are refused after the first
// minutes, and their callers.
func truth(p *policy.Policy, calls []call, planOf func(key string) string) (refused, callers int64) {
	states, hit := map[string]*core.State{}, map[string]bool{}
	op, out := make([]core.Op, 1), make([]core.Decision, 1)
	for _, c := range calls {
		if states[c.key] == nil {
			states[c.key] = &core.State{}
		}

		limit := p.Limit
		if own, ok := p.OverrideOf(c.key, start); ok {
			limit = own.Limit
		} else if l, ok := p.Plans[planOf(c.key)]; ok {
			limit = l
		}

		now := start.Add(c.at).UnixMicro()
		op[0] = core.Op{Rule: p.Name, Key: c.key, Cost: max(1, p.Cost.Units), Limit: limit, Ban: p.Ban.OrNil()}
		if limit.NeedsWindows() {
			op[0].Windows = limit.Windows(now)
		}

		// Each key has a state, as a store keeps it. A key that is banned is not asked for.
		if core.Decide(op, []*core.State{states[c.key]}, now, out); !p.BanOf(c.key, start).IsZero() {
			out[0].Allowed = false
		}

		enforced := p.Enforce == 0 || p.Enforce.Has(p.Name, c.key)
		if !out[0].Allowed && enforced && c.at >= lead*time.Minute {
			refused++
			hit[c.key] = true
		}
	}
	return refused, int64(len(hit))
}

// recorded counts the requests as instances do: each by the sketch of the minute, of which it
// writes the first keys.
func recorded(t testing.TB, calls []call, instances, top int, r *rand.Rand) []topkeys.Summary {
	t.Helper()
	counts := make([][]map[string]int64, all)
	for i := range counts {
		counts[i] = make([]map[string]int64, instances)
		for j := range instances {
			counts[i][j] = map[string]int64{}
		}
	}

	// An instance counts what comes to it.
	for _, c := range calls {
		if c.at >= 0 {
			counts[c.at/time.Minute][r.IntN(instances)][c.key]++
		}
	}

	list := make([]topkeys.Summary, all)
	for i := range list {
		var parts []topkeys.Summary
		for j := range instances {
			parts = append(parts, sketched(counts[i][j], top, r))
		}

		list[i] = topkeys.Merge(1000, parts...)
		list[i].From, list[i].To = start.Add(time.Duration(i)*time.Minute), start.Add(time.Duration(i+1)*time.Minute)
	}
	return list
}

// sketched returns a summary with some error.
func sketched(counts map[string]int64, top int, r *rand.Rand) (s topkeys.Summary) {
	most := r.Int64N(4) * r.Int64N(2) * r.Int64N(3)
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		n := counts[key]
		s.Total += n
		over := min(r.Int64N(most+1), n-1)
		extra := r.Int64N(most + 1)
		s.Keys = append(s.Keys, topkeys.Key{Key: key, Count: n + extra, Error: over + extra})
	}

	// Of those that are not listed the largest count is known.
	slices.SortFunc(s.Keys, func(a, b topkeys.Key) int {
		return cmp.Or(cmp.Compare(b.Least(), a.Least()), cmp.Compare(a.Key, b.Key))
	})
	for _, k := range s.Keys[min(top, len(s.Keys)):] {
		s.Floor = max(s.Floor, k.Count)
	}
	s.Keys = s.Keys[:min(top, len(s.Keys))]
	return s
}

// traffic returns requests of callers who come evenly, at random, in bursts, and all at once where
// one minute meets the next, from a while before the first minute on.
func traffic(r *rand.Rand) (list []call) {
	const before = 20
	for k := range 1 + r.IntN(1+r.IntN(12)) {
		key, kind := fmt.Sprint("key-", k), r.IntN(6)
		rate, pause := []int{0, 1, 5, 20, 60}[r.IntN(5)], r.IntN(4)
		for m := -before; m < all; m++ {
			n, at := r.IntN(2*rate+2), time.Duration(r.Int64N(int64(time.Minute)))

			// Some rest in some minutes.
			if pause > 0 && r.IntN(pause+1) == 0 {
				n = 0
			}
			for i := range n {
				switch kind {
				case 0: // evenly
					at = time.Duration(i) * time.Minute / time.Duration(n)
				case 1: // at random
					at = time.Duration(r.Int64N(int64(time.Minute)))
				case 2: // at the end of one minute, and the beginning of the next
					at = time.Duration((m+before+1)%2) * (time.Minute - time.Microsecond)
				case 3: // at the beginning
					at = 0
				case 4: // at the end
					at = time.Minute - time.Microsecond
				}
				list = append(list, call{(time.Duration(m)*time.Minute + at).Truncate(time.Microsecond), key})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	return list
}

// limitOf returns a limit of one algorithm.
func limitOf(r *rand.Rand, a core.Algorithm) core.Limit {
	l := core.Limit{Algorithm: a, Quota: 4 + r.Int64N(1+r.Int64N(100)),
		Period: []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Minute, 90 * time.Second,
			2 * time.Minute, 5 * time.Minute, 20 * time.Minute, time.Hour}[r.IntN(9)]}

	// Options that the algorithm has.
	switch a {
	case core.GCRA, core.TokenBucket:
		if r.IntN(2) == 0 {
			l.Burst = 4 + r.Int64N(60)
		}
	case core.FixedWindow:
		l.Aligned = r.IntN(2) == 0
	case core.SlidingWindow:
		l.Segments = []int{0, 1, 2, 5, 20}[r.IntN(5)]
	case core.CalendarWindow:
		l.Period, l.Calendar = 0, "day"
	}
	return l
}

// policyOf returns a policy under an algorithm.
func policyOf(t *testing.T, r *rand.Rand, a core.Algorithm) *policy.Policy {
	p := &policy.Policy{Name: "p", Apps: []string{"a"}, Key: "user", Limit: limitOf(r, a)}
	if r.IntN(4) == 0 {
		p.Cost.Units = 1 + r.Int64N(4)
	}

	if r.IntN(4) == 0 {
		p.Enforce = core.Share(1 + r.IntN(9999))
	}

	// Limits of some callers.
	if r.IntN(4) == 0 {
		p.Plans, p.PlanBy = map[string]core.Limit{"one": limitOf(r, a), "two": limitOf(r, a)}, "x"
	}
	if r.IntN(4) == 0 {
		p.Overrides = map[string]policy.Override{"key-0": {Limit: limitOf(r, a)}, "key-1*": {Limit: limitOf(r, a)}}
	}

	if r.IntN(6) == 0 {
		if p.Overrides == nil {
			p.Overrides = map[string]policy.Override{}
		}
		p.Overrides[fmt.Sprint("key-", r.IntN(4))] = policy.Override{BannedUntil: start.Add(time.Hour)}
	}

	if r.IntN(8) == 0 {
		p.Ban = core.MustParseBan("5/1m for 1m max 1h")
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

// What the engine refuses lies within the bounds, whatever the limit and the requests are.
func TestTheTruthIsWithinTheBounds(t *testing.T) {
	var useful, exact, cases int

	// Each algorithm but for that of leases has as many cases.
	for a := core.GCRA; a <= core.CalendarWindow; a++ {
		if a == core.Concurrency {
			continue
		}
		for seed := range uint64(350) {
			r := rand.New(rand.NewPCG(seed, uint64(a)))
			p, calls := policyOf(t, r, a), traffic(r)
			plans := map[string]string{}
			for k := range 12 {
				plans[fmt.Sprint("key-", k)] = []string{"", "one", "two"}[r.IntN(3)]
			}

			// One to three instances record from one to fourteen keys each.
			minutes := recorded(t, calls, 1+r.IntN(3), 1+r.IntN(14), r)
			b := Refused(p, nil, minutes, lead, start)
			refused, callers := truth(p, calls, func(key string) string { return plans[key] })
			if refused < b.Least || refused > b.Most || callers < b.Callers {
				t.Fatalf("%s, seed %d, %+v: %d of %d callers are refused, not within %+v",
					p.Limit, seed, p, refused, callers, b)
			}

			cases++
			if b.Least > 0 || b.Most == 0 {
				useful++
			}

			if b.Least == b.Most {
				exact++
			}
		}
	}

	// The cases are the same in each run.
	if cases != 2100 || useful != 1623 || exact != 238 {
		t.Errorf("%d of %d say something for certain, %d are exact", useful, cases, exact)
	}
}

// at returns n requests of a key at an instant.
func at(minute float64, n int, key string) (list []call) {
	for range n {
		list = append(list, call{time.Duration(minute * float64(time.Minute)).Truncate(time.Microsecond), key})
	}
	return list
}

// where returns requests where an odd minute meets the next, of each minute as many.
func where(n int) (list []call) {
	for m := 1; m < all; m += 2 {
		list = append(list, at(float64(m+1)-1e-7, n, "a")...)
		list = append(list, at(float64(m+1), n, "a")...)
	}
	return list
}

// dense returns requests of the hour at even distances, after a while without any.
func dense(every time.Duration) (list []call) {
	for d := lead * time.Minute; d < all*time.Minute; d += every {
		list = append(list, call{d, "a"})
	}
	return list
}

// There are requests of which as few, or as many, are refused as the bounds say.
func TestTheBoundsAreReached(t *testing.T) {
	for _, row := range []struct {
		what        string
		limit       string
		calls       []call
		unlisted    int64 // a key with so many requests in a minute is not listed
		least, most int64
		truth       int64
	}{
		{"a burst and what comes back", "60/1m", dense(500 * time.Millisecond), 0, 3541, 5400, 3541},
		{"one burst in two minutes", "60/1m", where(200), 0, 8341, 10200, 10200},
		{"a smaller burst", "60/1m burst=20", where(200), 0, 8381, 11400, 11400},
		{"refills", "60/1m token-bucket", where(200), 0, 8340, 10200, 10200},
		{"a log", "60/1m sliding-log", where(200), 0, 8400, 10200, 10200},
		{"windows", "60/1m fixed-window", where(200), 0, 8340, 10200, 10200},
		{"windows of the clock", "60/1m fixed-window aligned", where(200), 0, 8400, 8400, 8400},
		{"ten seconds of the clock", "10/10s fixed-window aligned", where(200), 0, 8400, 11400, 11400},
		{"segments of the clock", "60/1m sliding-window", where(200), 0, 8400, 10200, 10200},

		// What was used before counts, and no more of it than there was.
		{"used before", "20/2m fixed-window", append(at(4.9, 20, "a"), at(5, 20, "a")...), 0, 0, 20, 20},
		{"used in part", "20/2m fixed-window", append(at(4.9, 15, "a"), at(5, 20, "a")...), 0, 0, 15, 15},

		// A key that is not listed has come as often as the floor says.
		{"one too many", "10/1m fixed-window aligned", at(7, 11, "a"), 11, 0, 11, 1},
		{"as many as may be", "10/1m fixed-window aligned", at(7, 10, "a"), 10, 0, 0, 0},
		{"listed in the next minute", "20/2m fixed-window", append(at(6, 10, "a"), at(7, 20, "a")...), 10, 0, 10, 10},
	} {
		t.Run(row.what, func(t *testing.T) {
			p := &policy.Policy{Name: "p", Limit: core.MustParseLimit(row.limit)}

			b := Refused(p, nil, exactly(row.calls, row.unlisted), lead, start)
			refused, _ := truth(p, row.calls, func(string) string { return "" })
			if b.Least != row.least || b.Most != row.most || refused != row.truth {
				t.Errorf("%d are refused, within %d to %d; want %d within %d to %d", refused, b.Least, b.Most,
					row.truth, row.least, row.most)
			}
		})
	}
}

// exactly counts requests without errors, and does not list keys with so many or fewer in a minute.
func exactly(calls []call, unlisted int64) []topkeys.Summary {
	list := make([]topkeys.Summary, all)
	for i := range list {
		counts := map[string]int64{}
		for _, c := range calls {
			if c.at >= 0 && int(c.at/time.Minute) == i {
				counts[c.key]++
				list[i].Total++
			}
		}

		// What is not listed raises the floor.
		for key, n := range counts {
			if n <= unlisted {
				list[i].Floor = max(list[i].Floor, n)
			} else {
				list[i].Keys = append(list[i].Keys, topkeys.Key{Key: key, Count: n})
			}
		}
		list[i].From, list[i].To = start.Add(time.Duration(i)*time.Minute), start.Add(time.Duration(i+1)*time.Minute)
	}
	return list
}

// Clocks that differ leave open which requests came first.
func TestClocksThatDiffer(t *testing.T) {
	p := &policy.Policy{Name: "p", Limit: core.MustParseLimit("60/1m fixed-window aligned")}
	minutes := exactly(where(200), 0)
	minutes[9].From = minutes[9].From.Add(-time.Second)
	if b := Refused(p, nil, minutes, lead, start); b != (Bounds{8280, 12000, 1}) {
		t.Errorf("%+v", b)
	}
}

func TestTighter(t *testing.T) {
	for _, row := range []struct {
		was, is string
		want    bool
	}{
		{"100/1m", "100/1m", false}, {"100/1m", "99/1m", true}, {"100/1m", "101/1m", false},
		{"100/1m", "100/1m burst=99", true}, {"100/1m", "100/1m burst=101", false},
		{"100/1m", "1000/1h burst=1000", true}, {"100/1m", "100/1m fixed-window", false},
		{"100/1m fixed-window", "100/1m sliding-log", true}, {"100/1m", "20000/1d fixed-window", true},
		{"100/day", "99/day", true}, {"99/day", "100/day", false},
		{"5 concurrent ttl=1m", "5 concurrent ttl=1m", false}, {"5 concurrent ttl=1m", "5/1m", true},
	} {
		q, p := policy.Policy{Limit: core.MustParseLimit(row.was)}, policy.Policy{Limit: core.MustParseLimit(row.is)}
		if got := Tighter(&q, &p); got != row.want {
			t.Errorf("%s, and then %s: %t", row.was, row.is, got)
		}
	}
}
