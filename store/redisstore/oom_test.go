package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
)

// fullServer returns a store on a server without free memory, or skips the test if the
// server knows no flags of scripts.
func fullServer(t *testing.T) *Store {
	t.Helper()
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := fresh(t, server.Addr, Options{})
	ctx := context.Background()
	if major := c.InfoMap(ctx, "server").Item("Server", "redis_version"); strings.HasPrefix(major, "6.") ||
		strings.HasPrefix(major, "5.") {
		test.Skip(t, "Redis "+major+" knows no flags of scripts")
	}
	if err := c.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

// A server that is full goes on counting under limits whose states are small.
func TestFullServerCountsWhereTheStateIsSmall(t *testing.T) {
	s := fullServer(t)

	// Every algorithm, and for those that keep records the largest number that counts as small.
	for _, text := range []string{
		"3/1h", "3/1h token-bucket", "3/1h fixed-window", "3/1h sliding-window", "3/1h sliding-window segments=360",
		"3/1h sliding-log", "64/1h sliding-log", "3 concurrent ttl=1h", "64 concurrent ttl=1h", "3/year",
	} {
		l := limit(t, text)
		for n := range l.Quota + 2 {
			op := core.Op{Rule: "rule", Key: text, Limit: l, Cost: 1, Lease: fmt.Sprint("lease", n)}
			if d := apply(t, s, op)[0]; d.Allowed != (n < l.Quota) {
				t.Errorf("%s, take %d: %+v", text, n, d)
			}
		}
	}

	// A step of three rules writes three small states at once.
	steps := []core.Op{
		{Rule: "a", Key: "both", Limit: limit(t, "1/1h"), Cost: 1},
		{Rule: "b", Key: "both", Limit: limit(t, "2/1h sliding-log"), Cost: 1},
		{Rule: "c", Key: "both", Limit: limit(t, "2 concurrent ttl=1h"), Cost: 1, Lease: "lease"},
	}

	for n := range 2 {
		if out := apply(t, s, steps...); out[0].Allowed != (n == 0) || out[1].Remaining != 1 {
			t.Errorf("step %d of three rules: %+v", n, out)
		}
	}
}

// Under limits whose states may become large it fails, and says which.
func TestFullServerNamesTheLimitThatItCannotKeep(t *testing.T) {
	s := fullServer(t)
	for text, records := range map[string]string{"65/1h sliding-log": "log", "65 concurrent ttl=1h": "leases"} {
		// One record more than is small.
		ops := []core.Op{
			{Rule: "small", Key: "k", Limit: limit(t, "3/1h"), Cost: 1},
			{Rule: records, Key: "k", Limit: limit(t, text), Cost: 1, Lease: "lease"},
		}

		for _, step := range [][]core.Op{ops[1:], ops} {
			// Alone, and beside a rule that could be kept.
			err := s.Apply(context.Background(), step, make([]core.Decision, 2))
			want := `redisstore: rule "` + records + `", ` + text +
				": the server's memory is full, and only states of up to 64 records are written then: OOM "
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
		}

		// The other rule of the step was not charged: the only unit is the one taken now.
		if d := apply(t, s, ops[0])[0]; d.Remaining != 2 {
			t.Errorf("%s: %+v, want the first unit of the other rule", text, d)
		}

		reset := ops[0]
		reset.Verb = core.Reset
		apply(t, s, reset)
	}
}

// A request that one rule refuses writes no key of another, so a rule about addresses
// bounds what the random keys of one caller cost the server.
func TestRandomKeysOfOneCallerAreBoundedByAnotherRule(t *testing.T) {
	server := redistest.Start(t)
	s, c := fresh(t, server.Addr, Options{})
	for i := range 1000 {
		apply(t, s, core.Op{Rule: "address", Key: "192.0.2.1", Limit: limit(t, "7/1h"), Cost: 1},
			core.Op{Rule: "key", Key: fmt.Sprint("random", i), Limit: limit(t, "5/24h sliding-log"), Cost: 1})
	}
	if n := c.DBSize(context.Background()).Val(); n != 1+7 {
		t.Errorf("%d keys for 1000 random ones, want one for the address and 7", n)
	}
}

// Servers before Redis 7, and miniredis, refuse the first line of a script, which
// has its flags.
func TestOldServerIsAskedWithoutFlags(t *testing.T) {
	m := mini(t)
	s, _ := fresh(t, m.Addr(), Options{})
	if s.link.noHeaderLine.Load() {
		t.Fatal("nothing was asked yet")
	}
	op := core.Op{Rule: "rule", Key: "key", Limit: limit(t, "1/1h"), Cost: 1}
	if d := apply(t, s, op)[0]; !d.Allowed || !s.link.noHeaderLine.Load() {
		t.Errorf("%+v, without the first line %t", d, s.link.noHeaderLine.Load())
	}
	if d := apply(t, s, op)[0]; d.Allowed {
		t.Errorf("%+v", d)
	}
}

// A step that a full server refuses does not stop the other steps of its call.
func TestFullServerRefusalDoesNotStopOtherSteps(t *testing.T) {
	s := fullServer(t)
	b := newBatch().(*batch)

	// The step in the middle is refused for its size.
	for _, text := range []string{"1/1h", "65/1h sliding-log", "1/1h fixed-window"} {
		w := newWaiter().(*waiter)
		w.copyOps([]core.Op{{Rule: "rule", Key: text, Limit: limit(t, text), Cost: 1}})
		b.add(w)
	}

	callers := slices.Clone(b.waiters) // the batch drops waiters that have an answer
	if err := s.dispatcher.send(context.Background(), b); err != nil {
		t.Fatal(err)
	}

	for i, want := range []bool{true, false, true} {
		if got := callers[i]; (got.err == nil) != want || got.out[0].Allowed != want {
			t.Errorf("step %d: %+v, %v, want allowed %t", i, got.out[0], got.err, want)
		}
	}
}
