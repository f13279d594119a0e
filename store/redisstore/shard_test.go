package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
)

// subjects are texts that keys hold as they are, and texts that they do not.
var subjects = []string{"", "a", "b", "10.0.0.1", "{b}", "}", "ü\x00", strings.Repeat("long", 100),
	strings.Repeat("\xff", maxReadable)}

func TestShardIsTheMasterOfTheKey(t *testing.T) {
	t.Parallel()
	masters := redistest.Cluster(t, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(masters), ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })

	// With the keys of one slot, and with digests, the place follows the key and not the subject.
	for _, o := range []Options{{}, {OneSlot: true}, {Secret: []byte("sixteen bytes of it")}} {
		o.Timeout = patient
		s := MustNew(c, o)

		// The first call loads the table.
		apply(t, s, core.Op{Rule: "r", Key: "k", Limit: limit(t, "3/1h"), Cost: 1})

		for _, subject := range subjects {
			key := string(s.wire.key(nil, subject, "r", "g"))
			slot, err := c.ClusterKeySlot(t.Context(), key).Result()
			if err != nil {
				t.Fatal(err)
			}

			// The masters share the slots evenly, in their order.
			if got, want := s.topology.shard(subject), masters[slot*3/16384].Addr; got != want {
				t.Errorf("%q is at %q, want %s", key, got, want)
			}
		}
	}
}

func TestShardIsTheServerOfTheRing(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr, "b": b.Addr},
		ContextTimeoutEnabled: true})
	t.Cleanup(func() { ring.Close() })

	for _, o := range []Options{{}, {OneSlot: true}, {Secret: []byte("sixteen bytes of it")}} {
		o.Timeout, o.Prefix = patient, redistest.Prefix(t)
		s := MustNew(ring, o)
		for _, subject := range subjects {
			// The server named by Shard is asked directly whether it has the key.
			apply(t, s, core.Op{Rule: "r", Key: subject, Limit: limit(t, "3/1h"), Cost: 1})
			key := string(s.wire.key(nil, subject, "r", "g"))
			if n, err := connect(t, s.topology.shard(subject)).Exists(t.Context(), key).Result(); n != 1 || err != nil {
				t.Errorf("%q is not at %s: %v", key, s.topology.shard(subject), err)
			}
		}
	}
}

func TestOneServerHasNoShards(t *testing.T) {
	if MustNew(connect(t, "127.0.0.1:1"), Options{}).Shards() != nil {
		t.Error("one server has shards")
	}
}

// Shard reads the table that calls have loaded, and loads none.
func TestShardAsksNoServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var asked atomic.Int64
	c := mapped(t, server.Addr, &asked, redis.ClusterOptions{})

	s := MustNew(c, Options{Timeout: patient, OneSlot: true})
	if got := s.topology.shard("k"); got != "" || asked.Load() != 0 {
		t.Errorf("%q before the first call, after %d questions", got, asked.Load())
	}

	// The first call loads the table, once for all the questions after it.
	apply(t, s, core.Op{Rule: "r", Key: "k", Limit: limit(t, "3/1h"), Cost: 1})
	for range 1000 {
		if got := s.topology.shard("k"); !strings.HasSuffix(server.Addr, got) || got == "" { // the host is left out
			t.Fatalf("%q after the first call", got)
		}
	}

	if asked.Load() != 1 {
		t.Errorf("%d questions", asked.Load())
	}
}

func TestShardAllocatesNothing(t *testing.T) {
	server := redistest.Start(t)
	c := mapped(t, server.Addr, new(atomic.Int64), redis.ClusterOptions{})
	s := MustNew(c, Options{Timeout: patient})
	s.topology.mapped.Store(true)
	_ = s.topology.shard("k") // which loads the table
	if got := testing.AllocsPerRun(1000, func() { _ = s.topology.shard("203.0.113.7") }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// A service that begins while the master of its first keys is away learns where the
// others are.
func TestShardIsKnownAfterCallsThatFail(t *testing.T) {
	t.Parallel()
	masters := redistest.Cluster(t, 3)
	probe := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(masters)})
	t.Cleanup(func() { probe.Close() })

	// The master of the first key is gone before the service begins.
	gone, _, here := keysApart(t, probe)
	there, err := probe.MasterForKey(t.Context(), gone)
	if err != nil {
		t.Fatal(err)
	}

	for _, m := range masters {
		if m.Addr == there.Options().Addr {
			m.Kill()
		}
	}

	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(masters),
		ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { c.Close() })
	s := MustNew(c, Options{Timeout: 50 * time.Millisecond})

	// The calls fail, and the client learns the table from the others meanwhile.
	eventuallyTrue(t, "a name", func() bool {
		if _, err := takeOne(t.Context(), s, gone); err == nil {
			t.Fatal("decided")
		}
		return s.topology.shard(gone) != ""
	})

	if a, b := s.topology.shard(gone), s.topology.shard(here); a != there.Options().Addr || b == a || b == "" {
		t.Errorf("%s and %s, want %s and another", a, b, there.Options().Addr)
	}
}

// keysApart returns a key, another one of its master, and one of another master.
func keysApart(t testing.TB, c *redis.ClusterClient) (a, beside, apart string) {
	t.Helper()
	at := func(key string) string {
		m, err := c.MasterForKey(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		return m.Options().Addr
	}

	// Keys are tried until one is at the same master and one at another.
	a = "k"
	for i := 0; beside == "" || apart == ""; i++ {
		key := fmt.Sprint("k", i)
		if at(key) == at(a) {
			beside = key
		} else {
			apart = key
		}
	}
	return a, beside, apart
}

// The error of a step on several shards names the one that failed, and the units of the
// others are given back.
func TestErrorsOfStepsNameTheShard(t *testing.T) {
	t.Parallel()
	masters := redistest.Cluster(t, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(masters), ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	s := MustNew(c, Options{Timeout: patient})

	gone, beside, here := keysApart(t, c)
	op := func(key string) core.Op {
		return core.Op{Rule: "r", Key: key, Limit: limit(t, "10/1h fixed-window"), Cost: 4}
	}

	// Eight of here's 10 could be used up; four are, before the other master dies.
	apply(t, s, op(here))

	away := s.topology.shard(gone)
	for _, m := range masters {
		if m.Addr == away {
			m.Kill()
		}
	}

	hasty := MustNew(c, Options{Timeout: 5 * time.Second})
	hasty.topology.mapped.Store(true)

	// Whichever part of the step fails, first or second, it names the shard.
	for _, step := range [][]core.Op{{op(here), op(gone)}, {op(gone), op(here)}, {op(gone), op(beside)}} {
		var at interface{ Shard() string }
		err := hasty.Apply(t.Context(), step, make([]core.Decision, 2))
		if !errors.As(err, &at) || at.Shard() != away {
			t.Errorf("%v does not name %s", err, away)
		}
	}

	// The step that failed after here's part was charged has given it back: four are used before,
	// and four by the step that failed first.
	if d := apply(t, s, op(here))[0]; d.Remaining != 2 {
		t.Errorf("%d remain", d.Remaining)
	}
}
