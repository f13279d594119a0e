package redisstore

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/test"
)

// A server that is full goes on counting for limits whose state has one size.
func TestFullServerLimitsWhereTheStateHasOneSize(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := fresh(t, server.Addr, Options{})
	ctx := context.Background()
	if major := c.InfoMap(ctx, "server").Item("Server", "redis_version"); strings.HasPrefix(major, "6.") || strings.HasPrefix(major, "5.") {
		test.Skip(t, "Redis "+major+" knows no flags of scripts")
	}
	if err := c.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for text, counts := range map[string]bool{
		"3/1h": true, "3/1h token-bucket": true, "3/1h fixed-window": true, "3/1h sliding-window": true,
		"3/1h sliding-log": false, "3 concurrent ttl=1h": false,
	} {
		out := make([]core.Decision, 1)
		for n := range 5 {
			op := core.Op{Rule: "rule", Key: text, Limit: limit(t, text), Cost: 1, Lease: "lease" + string(rune('a'+n))}
			err := s.Apply(ctx, []core.Op{op}, out)
			switch {
			case !counts && (err == nil || !strings.Contains(err.Error(), "OOM")):
				t.Errorf("%s: %v, want an error about memory", text, err)
			case counts && (err != nil || out[0].Allowed != (n < 3)):
				t.Errorf("%s, take %d: %+v, %v", text, n, out[0], err)
			}
		}
	}
	steps := []core.Op{
		{Rule: "a", Key: "both", Limit: limit(t, "1/1h"), Cost: 1},
		{Rule: "b", Key: "both", Limit: limit(t, "2/1h fixed-window"), Cost: 1},
	}
	for n := range 2 {
		if out := apply(t, s, steps...); out[0].Allowed != (n == 0) {
			t.Errorf("step %d of two rules: %+v", n, out)
		}
	}
}

// Servers before Redis 7, and miniredis, refuse the first line of a script, which
// has its flags.
func TestOldServerIsAskedWithoutFlags(t *testing.T) {
	m := mini(t)
	s, _ := fresh(t, m.Addr(), Options{})
	if s.plain.Load() {
		t.Fatal("nothing was asked yet")
	}
	op := core.Op{Rule: "rule", Key: "key", Limit: limit(t, "1/1h"), Cost: 1}
	if d := apply(t, s, op)[0]; !d.Allowed || !s.plain.Load() {
		t.Errorf("%+v, plain %t", d, s.plain.Load())
	}
	if d := apply(t, s, op)[0]; d.Allowed {
		t.Errorf("%+v", d)
	}
}

// A step that a full server refuses does not stop the other steps of its call.
func TestFullServerRefusalDoesNotStopOtherSteps(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	s, c := fresh(t, server.Addr, Options{})
	ctx := context.Background()
	if err := c.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	b := newBatch().(*batch)
	for _, text := range []string{"1/1h", "1/1h sliding-log", "1/1h fixed-window"} {
		w := newWaiter().(*waiter)
		w.own([]core.Op{{Rule: "rule", Key: text, Limit: limit(t, text), Cost: 1}})
		b.add(w)
	}
	callers := slices.Clone(b.waiters) // the batch drops waiters that have an answer
	if err := s.send(ctx, b); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, true} {
		if got := callers[i]; (got.err == nil) != want || got.out[0].Allowed != want {
			t.Errorf("step %d: %+v, %v, want allowed %t", i, got.out[0], got.err, want)
		}
	}
}
