package redisstore

import (
	"context"
	"slices"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
)

func cluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: redistest.Addrs(redistest.Cluster(t, 3)), ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// steps about two subjects whose keys are on different nodes: what each allows
// and leaves must be the same as in one step.
func TestRulesAboutSeveralSubjectsAreAllOrNothingOnACluster(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	now := int64(1_800_000_000_000_000)
	for _, o := range []Options{{}, {OneSlot: true}} {
		o.Prefix, o.Timeout, o.Clock = redistest.Prefix(t), patient, func() int64 { return now }
		s := MustNew(c, o)
		single := MustNew(connect(t, redistest.Addr(t)), o)
		for _, text := range everyAlgorithm {
			l := limit(t, text)
			op := func(verb core.Verb, key string, cost int64) core.Op {
				return core.Op{Verb: verb, Rule: "r", Key: key, Limit: l, Cost: cost, Lease: "l"}
			}
			for _, ops := range [][]core.Op{
				{op(core.Take, "alice", 4), op(core.Take, "bob", 3)},
				{op(core.Take, "carol", 1), op(core.Take, "bob", 11), op(core.Take, "dave", 1)},
				{op(core.Take, "erin", 2), op(core.Take, "bob", 11), op(core.Peek, "alice", 1), op(core.Take, "erin", 1)},
				{op(core.Peek, "alice", 0), op(core.Peek, "bob", 0), op(core.Peek, "carol", 0), op(core.Peek, "dave", 0)},
				{op(core.Reset, "alice", 0), op(core.Reset, "bob", 0)},
			} {
				now += 1000
				want := apply(t, single, slices.Clone(ops)...)
				if got := apply(t, s, ops...); !slices.Equal(got, want) {
					t.Errorf("%s, one slot %v: %+v\n got %+v\nwant %+v", text, o.OneSlot, ops, got, want)
				}
			}
		}
	}
}

// A subject that cannot be decided leaves the others uncharged.
func TestWhatWasTakenIsGivenBackWhenALaterSubjectFails(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	s := MustNew(c, Options{Prefix: redistest.Prefix(t), Timeout: patient})
	l := limit(t, "10/1h fixed-window")
	a := core.Op{Rule: "r", Key: "a", Limit: l, Cost: 4}
	b := core.Op{Rule: "r", Key: "b", Limit: l, Cost: 1}
	if err := c.RPush(context.Background(), string(s.key(nil, "b", "r", "f")), "x").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(context.Background(), []core.Op{a, b}, make([]core.Decision, 2)); err == nil {
		t.Fatal("a list was read")
	}
	a.Verb = core.Peek
	if d := apply(t, s, a)[0]; d.Remaining != 10 {
		t.Errorf("%d remain", d.Remaining)
	}
}

func TestARingIsAskedSubjectBySubject(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{
		Addrs:                 map[string]string{"a": redistest.Start(t).Addr, "b": redistest.Start(t).Addr},
		ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { ring.Close() })
	s := MustNew(ring, Options{Timeout: patient})
	l := limit(t, "3/1h fixed-window")
	for i := range 20 {
		key := string(rune('a' + i))
		ops := []core.Op{{Rule: "r", Key: key, Limit: l, Cost: 2}, {Rule: "r", Key: key + "'s friend", Limit: l, Cost: 4}}
		if out := apply(t, s, ops...); !out[0].Allowed || out[1].Allowed || out[0].Remaining != 3 {
			t.Errorf("%s: %+v", key, out)
		}
	}
}
