package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/findings"
)

func TestDiagnoseFindsAStoreWithoutAPrefix(t *testing.T) {
	c := connect(t, redistest.Start(t).Addr)
	for prefix, want := range map[string]int{"": 1, DefaultPrefix: 0, "shop:": 0} {
		found := MustNew(c, Options{Prefix: prefix}).Report().Diagnose(t.Context(), nil)
		if len(found) != want || want == 1 && (found[0].Code != findings.NoPrefix ||
			!strings.Contains(found[0].Text, "set redisstore.Options.Prefix")) {
			t.Errorf("%q: %v", prefix, found)
		}
	}
}

// process is one with rules of its own, diagnosed from one minute to another.
type process struct {
	from, to int
	prefix   string
	rules    []string // each a name and a limit
}

// Each row is the processes on one server, and the minutes at which each finds another
// limit on its counts.
func TestDiagnoseFindsAnotherLimitOnTheSameCount(t *testing.T) {
	minutes := func(from, to int) (list []int) {
		for m := from; m <= to; m++ {
			list = append(list, m)
		}
		return list
	}

	server := redistest.Start(t)
	admin := connect(t, server.Addr)
	for _, row := range []struct {
		name      string
		processes []process
		want      [][]int
	}{
		// The first has seen at 6 that the second went on at 5.
		{"two services", []process{{0, 8, "a:", []string{"api 10/1m"}}, {0, 8, "a:", []string{"api 100/1m"}}},
			[][]int{minutes(6, 8), minutes(5, 8)}},
		{"a service that comes later", []process{{0, 20, "a:", []string{"api 10/1m"}},
			{10, 20, "a:", []string{"api 100/1m"}}},
			[][]int{minutes(16, 20), minutes(15, 20)}},
		{"one of two rules", []process{{0, 6, "a:", []string{"x 1/1s", "api 10/1m"}},
			{0, 6, "a:", []string{"api 100/1m", "y 1/1s"}}},
			[][]int{{6}, {5, 6}}},
		// Other keys, other algorithms or the same limit: there is nothing to find.
		{"two prefixes", []process{{0, 9, "a:", []string{"api 10/1m"}}, {0, 9, "b:", []string{"api 100/1m"}}},
			[][]int{nil, nil}},
		{"two algorithms", []process{{0, 9, "a:", []string{"api 10/1m"}},
			{0, 9, "a:", []string{"api 100/1m fixed-window"}}}, [][]int{nil, nil}},
		{"one limit", []process{{0, 9, "a:", []string{"api 10/1m"}}, {0, 9, "a:", []string{"api 10/1m"}}},
			[][]int{nil, nil}},
		// The old limit ends within the five minutes for which a roll-out is no finding.
		{"a roll-out", []process{{0, 9, "a:", []string{"api 10/1m"}}, {5, 20, "a:", []string{"api 100/1m"}}},
			[][]int{nil, nil}},
	} {
		t.Run(row.name, func(t *testing.T) {
			admin.FlushAll(t.Context())
			now := int64(1e15)
			var stores []*Store
			for _, p := range row.processes {
				stores = append(stores, MustNew(connect(t, server.Addr),
					Options{Prefix: p.prefix, Timeout: patient, Clock: func() int64 { return now }}))
			}

			got := make([][]int, len(stores))
			for minute := range 21 {
				for i, p := range row.processes {
					// A process that does not run asks nothing.
					if minute < p.from || minute > p.to {
						continue
					}
					if found := stores[i].Report().Diagnose(t.Context(), rulesOf(t, p.rules)); len(found) > 0 {
						got[i] = append(got[i], minute)
					}
				}
				now += 60e6
			}

			if !slices.EqualFunc(got, row.want, slices.Equal[[]int]) {
				t.Errorf("found at the minutes %v, want %v", got, row.want)
			}
		})
	}
}

func rulesOf(t *testing.T, texts []string) (rules []core.Op) {
	t.Helper()
	for _, text := range texts {
		name, of, _ := strings.Cut(text, " ")
		rules = append(rules, core.Op{Rule: name, Limit: limit(t, of), Cost: 1})
	}
	return rules
}

func TestDiagnoseNamesTheRulesWithAnotherLimit(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1e15)
	a := MustNew(connect(t, server.Addr), Options{Prefix: "a:", Timeout: patient, Clock: func() int64 { return now }})
	b := MustNew(connect(t, server.Addr), Options{Prefix: "a:", Timeout: patient, Clock: func() int64 { return now }})

	// One rule is alike, and two differ.
	ofA, ofB := rulesOf(t, []string{"x 1/1s", "api 10/1m", "z 5/1h fixed-window"}),
		rulesOf(t, []string{"x 1/1s", "api 100/1m burst=20", "z 7/1h fixed-window"})

	var found []core.Finding

	// Six rounds a minute apart: the others have been in use for five minutes at the last.
	for range 6 {
		b.Report().Diagnose(t.Context(), ofB)
		found = a.Report().Diagnose(t.Context(), ofA)
		now += 60e6
	}

	want := `the same keys are counted by the rule api under 10/1m and under "100/1m burst=20", by the rule z under 5/1h fixed-window and under ` +
		`"7/1h fixed-window", for 5 minutes by now: if two services or limiters use the prefix "a:", they share these counts, and need ` +
		`different prefixes or names of rules; otherwise a change of the limit has not reached all instances`
	if len(found) != 1 || found[0].Code != findings.OtherLimit || found[0].Rule != "api" || found[0].Text != want {
		t.Errorf("%v", found)
	}
}

// Two limiters of one program may share a store, and both leave their rule's name out.
func TestDiagnoseFindsTwoLimitsOfOneProcess(t *testing.T) {
	now := int64(1e15)
	s := MustNew(connect(t, redistest.Start(t).Addr),
		Options{Prefix: "a:", Timeout: patient, Clock: func() int64 { return now }})

	found := map[string][]int{}
	for minute := range 20 {
		for _, limit := range []string{"10/1m", "20/1m"} {
			if limit == "20/1m" && minute > 7 && minute < 12 {
				continue // it is out of use for a while, and begins anew
			}
			if len(s.Report().Diagnose(t.Context(), rulesOf(t, []string{"default " + limit}))) > 0 {
				found[limit] = append(found[limit], minute)
			}
		}
		now += 60e6
	}

	// The count of five minutes begins anew after the pause, for both of them.
	want := map[string][]int{"10/1m": {6, 7, 8, 9, 18, 19}, "20/1m": {5, 6, 7, 17, 18, 19}}
	for limit, at := range want {
		if !slices.Equal(found[limit], at) {
			t.Errorf("%s at the minutes %v, want %v", limit, found[limit], at)
		}
	}
}

// A limit that no process notes any longer is forgotten, and at most 16 are kept.
func TestDiagnoseForgetsLimitsThatAreNotInUse(t *testing.T) {
	c := connect(t, redistest.Start(t).Addr)
	now := int64(1e15)
	s := MustNew(c, Options{Prefix: "a:", Timeout: patient, Clock: func() int64 { return now }})

	// Each note comes first in the key, with its instant, before those that are still in use.
	note := func(limit string) (kept int) {
		t.Helper()
		s.Report().Diagnose(t.Context(), rulesOf(t, []string{"api " + limit}))
		text, err := c.Get(t.Context(), "a:{*}:api:g:limits").Result()
		if err != nil || !strings.HasPrefix(text, fmt.Sprintf("%d %s", now/1000, limit)) {
			t.Errorf("%q, %v", text, err)
		}
		return 1 + strings.Count(text, "\n")
	}

	for i := range 20 {
		if got, want := note(fmt.Sprintf("%d/1m", i+1)), min(i+1, 16); got != want {
			t.Errorf("%d limits are kept of %d, want %d", got, i+1, want)
		}
	}

	// In use means within limitInUse, to the millisecond in which it ends.
	now += limitInUse.Microseconds() - 1000
	if got := note("1/1s"); got != 16 {
		t.Errorf("%d limits are kept just before their end", got)
	}

	now += 1000
	if got := note("1/2s"); got != 2 {
		t.Errorf("%d limits are kept at their end", got)
	}
}

// A thousand rules need eight calls, and every key expires.
func TestDiagnoseNotesTheLimitsOfManyRules(t *testing.T) {
	c := connect(t, redistest.Start(t).Addr)
	s := MustNew(c, Options{Prefix: "a:", Timeout: patient})

	var rules []string
	for i := range 1000 {
		rules = append(rules, fmt.Sprintf("r%d 10/1m", i))
	}

	if found := s.Report().Diagnose(t.Context(), rulesOf(t, rules)); len(found) != 0 {
		t.Error(found)
	}

	// Every key is in one slot of its own kind, and none lives for ever.
	ctx, keys := context.Background(), 0
	for it := c.Scan(ctx, 0, "a:{[*]}:*", 1000).Iterator(); it.Next(ctx); keys++ {
		if ttl := c.PTTL(ctx, it.Val()).Val(); ttl <= 0 || ttl > limitInUse {
			t.Errorf("%s lives for %s", it.Val(), ttl)
		}
	}
	if keys != 1000 {
		t.Errorf("%d keys", keys)
	}
}

// In a Cluster the notes have one server.
func TestDiagnoseNotesLimitsInACluster(t *testing.T) {
	t.Parallel()
	nodes := redistest.Cluster(t, 3)
	now := int64(1e15)
	o := Options{Prefix: "a:", Timeout: patient, Clock: func() int64 { return now }}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), ContextTimeoutEnabled: true})
	defer c.Close()
	a, b := MustNew(c, o), MustNew(c, o)
	var found []core.Finding
	for range 6 {
		b.Report().Diagnose(t.Context(), rulesOf(t, []string{"api 20/1m"}))
		found = a.Report().Diagnose(t.Context(), rulesOf(t, []string{"api 10/1m"}))
		now += 60e6
	}

	if len(found) != 1 || found[0].Code != findings.OtherLimit {
		t.Errorf("%v", found)
	}
}
