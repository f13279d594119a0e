package redisstore

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/failover"
)

// awaitInstances waits until n instances count as alive under the prefix.
func awaitInstances(t *testing.T, c *redis.Client, prefix string, n int64) {
	t.Helper()
	eventuallyTrue(t, fmt.Sprintf("there are never %d instances", n), func() bool {
		return c.ZCard(t.Context(), prefix+"{instances}").Val() == n
	})
}

// All uses of a store share one standby, which is one instance, and ends with the last of
// them. The next use begins anew.
func TestUsesOfAStoreShareOneStandby(t *testing.T) {
	t.Parallel()
	s, c := fresh(t, redistest.Addr(t), Options{Timeout: patient})

	first, releaseFirst := s.Back()
	second, releaseSecond := s.Back()
	if first.Store != second.Store {
		t.Error("two uses have two standbys")
	}
	awaitInstances(t, c, s.wire.prefix, 1)

	releaseFirst()

	// A use that is released twice is released once.
	releaseFirst()
	third, releaseThird := s.Back()
	if third.Store != first.Store {
		t.Error("a use beside another one has a standby of its own")
	}

	releaseThird()
	if n := c.ZCard(t.Context(), s.wire.prefix+"{instances}").Val(); n != 1 {
		t.Errorf("%d instances beside a use", n)
	}

	releaseSecond()
	if n := c.ZCard(t.Context(), s.wire.prefix+"{instances}").Val(); n != 0 {
		t.Errorf("%d instances after the last release", n)
	}

	again, release := s.Back()
	defer release()
	if again.Store == first.Store {
		t.Error("the standby outlives its last use")
	}
	awaitInstances(t, c, s.wire.prefix, 1)
}

// Two stores with one prefix are two instances, each of which grants half in an outage.
func TestStoresWithOnePrefixAreTwoInstances(t *testing.T) {
	t.Parallel()
	s, c := fresh(t, redistest.Addr(t), Options{Timeout: patient})
	other := MustNew(c, Options{Prefix: s.wire.prefix, Timeout: patient})
	_, release := s.Back()
	defer release()
	awaitInstances(t, c, s.wire.prefix, 1)

	second, release := other.Back()
	defer release()
	awaitInstances(t, c, s.wire.prefix, 2)

	// Ten are shared by two.
	eventuallyTrue(t, "the second never learns of both", func() bool { return other.back.instances.Live() == 2 })
	if got := grants(t, second.Fallback, "10/1h"); got != 5 {
		t.Errorf("the second admits %d of 10", got)
	}
}

// grants returns how many units of a key the store has left.
func grants(t *testing.T, s core.Store, text string) (n int) {
	t.Helper()
	ops := []core.Op{{Rule: "r", Key: "k", Limit: limit(t, text), Cost: 1}}
	out := make([]core.Decision, 1)
	for ; n < 1000; n++ {
		if err := s.Apply(t.Context(), ops, out); err != nil {
			t.Fatal(err)
		}
		if !out[0].Allowed {
			return n
		}
	}
	return n
}

// What Redis has granted is no more in the memory, which decides while Redis is away: one
// instance alone grants a key its limit.
func TestMemoryKnowsWhatRedisGranted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)

	// One instance is expected, so the memory may grant the whole limit.
	s, _ := fresh(t, server.Addr, Options{Instances: 1, Logger: slog.New(slog.DiscardHandler)})
	back, release := s.Back()
	defer release()

	ops := []core.Op{{Rule: "r", Key: "k", Limit: limit(t, "10/1h"), Cost: 4}}
	out := make([]core.Decision, 1)
	if err := back.Store.Apply(t.Context(), ops, out); err != nil || out[0].Remaining != 6 || out[0].Fallback {
		t.Fatalf("%+v, %v", out[0], err)
	}
	granted := out[0]

	server.Kill()
	if got := grants(t, back.Store, "10/1h"); got != 6 {
		t.Errorf("%d units are granted of 6 that are left", got)
	}

	eventuallyTrue(t, "Redis is never bypassed", func() bool {
		_ = grants(t, back.Store, "10/1h")
		return back.Store.(*failover.Store).State() == failover.Open
	})
	release() // a refund that would have to wait for Redis would be lost
	if err := back.Store.Apply(t.Context(), []core.Op{ops[0].Refund(granted)}, out); !errors.Is(err,
		failover.ErrClosed) {
		t.Errorf("a refund after the last release: %v", err)
	}
}

// A user that may not count instances is told so once, with the command that grants it, and
// the memory grants one unit of a key.
func TestInstancesWithoutPermission(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)

	// What a store needs, without what counting instances needs.
	setUser(t, connect(t, server.Addr), needed...)

	var log test.Log
	s := MustNew(asUser(t, server.Addr), Options{Prefix: "hg:", Timeout: patient,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	back, release := s.Back()
	defer release()

	eventuallyTrue(t, "nothing is logged", func() bool { return log.String() != "" })
	for _, part := range []string{"level=WARN",
		"may not run zrevrangebyscore, zrem, zadd, zcard on hg:{instances}", "ACL SETUSER limiter ~hg:* "} {
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, part) {
			t.Errorf("the log is\n%swant %s", text, part)
		}
	}

	if err := back.Store.Apply(t.Context(), []core.Op{{Rule: "r", Key: "other", Limit: limit(t, "10/1h"),
		Cost: 1}}, make([]core.Decision, 1)); err != nil {
		t.Error(err)
	}

	// Without a number of instances the memory must assume as many as the limit has units.
	if got := grants(t, back.Fallback, "10/1h"); got != 1 {
		t.Errorf("the memory grants %d units", got)
	}
}

// The memory has the clock of the store. Until Redis has answered, the expected number of
// instances counts.
func TestOptionsOfTheMemory(t *testing.T) {
	t.Parallel()
	now := int64(1e15)

	// Nothing listens there, so Redis never answers.
	c := connect(t, "127.0.0.1:1")
	s := MustNew(c, Options{Clock: func() int64 { return now }, Instances: 2, MemoryKeys: 1,
		Logger: slog.New(slog.DiscardHandler)})
	back, release := s.Back()
	defer release()

	ops := []core.Op{{Rule: "r", Key: "k", Limit: limit(t, "10/1h"), Cost: 1}}
	out := make([]core.Decision, 1)

	// Half of 10 is granted by one of two instances, of which one unit is taken.
	if err := back.Store.Apply(t.Context(), ops, out); err != nil || out[0].At != now || out[0].Remaining != 4 {
		t.Errorf("%+v, %v", out[0], err)
	}
}

// A key whose value cannot be read says nothing about Redis, which decides about all others.
func TestValueThatCannotBeReadIsNoOutage(t *testing.T) {
	t.Parallel()

	// A state of a later version, and the value of another program.
	for _, value := range []string{string([]byte{laterMark, 99}), "no state"} {
		s, c := fresh(t, redistest.Addr(t), Options{Timeout: patient, Logger: slog.New(slog.DiscardHandler)})
		back, release := s.Back()

		op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "1000/1h"), Cost: 1}
		key := string(s.wire.key(nil, op.Key, op.Rule, op.Limit.Algorithm.Letter()))
		c.Set(t.Context(), key, value, 0)

		// Twenty failures in a row would open the breaker if they counted as failures of Redis.
		for range 20 {
			out := make([]core.Decision, 1)
			if err := back.Store.Apply(t.Context(), []core.Op{op}, out); err != nil || !out[0].Fallback {
				t.Errorf("%q: %+v, %v", value, out[0], err)
			}
		}

		if n := back.Store.(*failover.Store).Stats(); n.Opened != 0 {
			t.Errorf("%q: %+v", value, n)
		}
		release()
	}
}
