package failover

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/store/redisstore"
)

// patience bounds every wait.
const patience = 30 * time.Second

func connect(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// patient returns a store for the reads of a test, whose calls do not time out.
func patient(t testing.TB, addr string) (core.Store, *redis.Client) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience})
	t.Cleanup(func() { c.Close() })
	return redisstore.MustNew(c, redisstore.Options{Timeout: patience}), c
}

// counted is a store that counts the calls.
type counted struct {
	core.Store
	calls atomic.Int64
}

func (c *counted) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	c.calls.Add(1)
	return c.Store.Apply(ctx, ops, out)
}

// inRedis returns a store whose primary is in Redis and has the timeout.
func inRedis(t testing.TB, c redis.UniversalClient, timeout time.Duration, o Options) (*Store, *counted) {
	t.Helper()
	primary := &counted{Store: redisstore.MustNew(c, redisstore.Options{Timeout: timeout})}
	o.Logger = silent
	s := MustNew(primary, o)
	t.Cleanup(func() { s.Close() })
	return s, primary
}

// until polls until a condition holds, and returns how long that took.
func until(t testing.TB, what string, holds func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(ms)
	defer tick.Stop()
	for !holds() {
		if time.Since(start) > patience {
			t.Fatalf("%s: not within %s", what, patience)
		}
		<-tick.C
	}
	return time.Since(start)
}

// everyKeyExpires fails if a key has no time to live.
func everyKeyExpires(t testing.TB, c *redis.Client) {
	t.Helper()
	ctx, keys := context.Background(), 0
	for it := c.Scan(ctx, 0, "*", 1000).Iterator(); it.Next(ctx); keys++ {
		if c.PTTL(ctx, it.Val()).Val() == -1 { // 0 means less than a millisecond, and -2 that the key is gone
			t.Errorf("%s has no time to live", it.Val())
		}
	}
	if keys == 0 {
		t.Error("there are no keys")
	}
}

// faults are the faults of the server, and how each one ends.
var faults = []struct {
	name       string
	begin, end func(*redistest.Server)
}{
	{"frozen", (*redistest.Server).Freeze, (*redistest.Server).Thaw},
	{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart},
}

const (
	budget = redisstore.DefaultTimeout + 20*ms
	reuse  = time.Second
)

func TestRedisFaultCostsAtMostTheTimeout(t *testing.T) {
	for _, fault := range faults {
		for _, local := range []bool{true, false} {
			t.Run(fmt.Sprint(fault.name, " fallback ", local), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				o := Options{}
				if local {
					o.Fallback = memory()
				}
				s, primary := inRedis(t, connect(t, server.Addr), redisstore.DefaultTimeout, o)
				untilTrusted(t, s, take(t, "k", "100000/1000h", 1))
				slowest, back := outage(t, server, s, primary, fault.begin, fault.end)
				test.AtMost(t, "the slowest call in an outage", slowest, budget)
				test.AtMost(t, "until Redis is in use after its return", back, reuse)
				_, c := patient(t, server.Addr)
				everyKeyExpires(t, c)
			})
		}
	}
}

// untilTrusted carries out a Take until the primary decides it and has no failure
// on record, and returns the last decision.
func untilTrusted(t testing.TB, s *Store, op core.Op) (d core.Decision) {
	t.Helper()
	until(t, "the trust", func() bool {
		local := s.Stats().Local
		var err error
		d, err = try(s, op)
		return err == nil && s.Stats().Local == local && s.State() == Closed && s.breaker.score.Load() == 0
	})
	return d
}

// outage takes the store through an outage and back. It returns how long the
// slowest call took, and how long after its return the primary was in use.
func outage(t *testing.T, server *redistest.Server, s *Store, primary *counted, begin, end func(*redistest.Server)) (slowest, back time.Duration) {
	begin(server)
	calls, probes := primary.calls.Load(), s.probes.Load()
	for i := range 1000 {
		start := time.Now()
		_, err := try(s, take(t, "k", "100000/1000h", 1))
		slowest = max(slowest, time.Since(start))
		if (err == nil) != (s.fallback != nil) {
			t.Fatal(err)
		}
		if got, want := s.State() == Open, i >= DefaultFailures-1; got != want {
			t.Fatalf("open %t after %d calls", got, i+1)
		}
		if err != nil && errors.Is(err, ErrOpen) != (i >= DefaultFailures) {
			t.Fatalf("call %d: %v", i+1, err)
		}
	}
	// A probe is noted before it calls.
	if sent := primary.calls.Load() - calls - int64(s.probes.Load()-probes); sent > DefaultFailures {
		t.Errorf("%d calls reached the primary besides probes", sent)
	}
	end(server)
	back = until(t, "the return", func() bool { return s.State() == Closed })
	untilTrusted(t, s, take(t, "k", "100000/1000h", 1))
	return slowest, back
}

// admittedThere is admitted by the primary alone. It also returns how many calls
// the fallback decided, because the machine stood still.
func admittedThere(t testing.TB, s *Store, op core.Op) (n, late int) {
	t.Helper()
	for start := time.Now(); time.Since(start) < patience; {
		local := s.Stats().Local
		d := one(t, s, op)
		switch {
		case s.Stats().Local != local:
			late++
		case d.Allowed:
			n++
		default:
			return n, late
		}
	}
	t.Fatalf("not refused within %s", patience)
	return n, late
}

// A fleet shares one Redis and one limit.
func TestRedisOutageGrantsTheLimitOnceMoreAtMost(t *testing.T) {
	for _, size := range []int{1, 3} {
		for _, fault := range faults {
			t.Run(fmt.Sprint(size, " ", fault.name), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				c := connect(t, server.Addr)
				var fleet []*Store
				for range size {
					live := begin(t, c, InstancesOptions{Prefix: "hg:", TTL: time.Hour, Expected: size})
					s, _ := inRedis(t, c, 200*ms, Options{Fallback: memory(), Instances: live.Live, Slow: 400 * ms})
					fleet = append(fleet, s)
				}
				op := take(t, "k", "30/1h fixed-window", 1)
				if d := one(t, fleet[0], take(t, "warm", "30/1h fixed-window", 1)); !d.Allowed {
					t.Fatal("refused")
				}
				fault.begin(server)
				local := 0
				for _, s := range fleet {
					local += admitted(t, s, op)
				}
				if local != 30 {
					t.Errorf("%d in the outage, want 30", local)
				}
				fault.end(server)
				until(t, "the return", func() bool {
					for _, s := range fleet {
						if s.State() == Open {
							return false
						}
					}
					return true
				})
				// A call that timed out may have been charged.
				after, late := admittedThere(t, fleet[0], op)
				if after > 30 || after < 30-size*DefaultFailures-late {
					t.Errorf("%d afterwards, and %d calls timed out", after, late)
				}
				for _, s := range fleet { // the last instance has learned that nothing is left
					if n := admitted(t, s, op); n != 0 {
						t.Errorf("%d more", n)
					}
				}
				_, all := patient(t, server.Addr)
				everyKeyExpires(t, all)
				fault.begin(server)
				for _, s := range fleet {
					if n := admitted(t, s, op); n != 0 {
						t.Errorf("%d more in the next outage", n)
					}
				}
				fault.end(server)
			})
		}
	}
}

// A lease that was released while Redis was away is no longer held when Redis is
// back.
func TestRedisLeaseIsReleasedAfterAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, _ := inRedis(t, connect(t, server.Addr), 200*ms, Options{Fallback: memory(), Slow: 400 * ms})
	const text = "2 concurrent ttl=1h"
	a := lease(t, "a", text)
	d := untilTrusted(t, s, a) // to ask for it again renews it
	server.Freeze()
	for i := range DefaultFailures {
		one(t, s, lease(t, fmt.Sprint("b", i), text))
	}
	one(t, s, undo(a, d))
	if got := s.Stats(); got.State != Open || got.Waits != 1 {
		t.Fatalf("%+v", got)
	}
	server.Thaw()
	until(t, "the return", func() bool { return s.State() == Closed && s.Stats().Waits == 0 })
	there, _ := patient(t, server.Addr)
	if got := remaining(t, there, a); got < 1 || s.Stats().Lost != 0 {
		t.Errorf("%d remain, %+v", got, s.Stats()) // a call that timed out may hold the other
	}
}
