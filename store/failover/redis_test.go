package failover_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/redisstore"
)

// patient returns a store for the reads of a test, whose calls do not time out.
func patient(t testing.TB, addr string) (core.Store, *redis.Client) {
	t.Helper()
	c := failover.Patiently(t, addr)
	return redisstore.MustNew(c, redisstore.Options{Timeout: failover.Patience}), c
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
func inRedis(t testing.TB, c redis.UniversalClient, timeout time.Duration, o failover.Options) (*failover.Store,
	*counted) {
	t.Helper()
	primary := &counted{Store: redisstore.MustNew(c, redisstore.Options{Timeout: timeout})}
	o.Logger = failover.Silent
	s := failover.MustNew(primary, o)
	t.Cleanup(func() { s.Close() })
	return s, primary
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
	budget = redisstore.DefaultTimeout + 20*time.Millisecond
	reuse  = time.Second
)

func TestRedisFaultCostsAtMostTheTimeout(t *testing.T) {
	if failover.Racing {
		test.Skip(t, "it measures times, and the race detector makes this process late: without it, it runs")
	}
	for _, fault := range faults {
		for _, local := range []bool{true, false} {
			t.Run(fmt.Sprint(fault.name, " fallback ", local), func(t *testing.T) {
				t.Parallel()

				// Each fault has a server of its own, so that the faults can be measured side by
				// side.
				server := redistest.Start(t)
				o := failover.Options{}
				if local {
					o.Fallback = failover.Memory()
				}
				s, primary := inRedis(t, failover.Connect(t, server.Addr), redisstore.DefaultTimeout, o)

				// What is measured begins with a primary that is trusted.
				untilTrusted(t, s, failover.Taking(t, "k", "100000/1000h", 1))
				slowest, back := outage(t, server, s, primary, fault.begin, fault.end)

				test.AtMost(t, "the slowest call in an outage", slowest, budget)
				test.AtMost(t, "until Redis is in use after its return", back, reuse)

				_, c := patient(t, server.Addr)
				failover.EveryKeyExpires(t, c)
			})
		}
	}
}

// untilTrusted carries out a Take until the primary decides it and has no failure
// on record, and returns the last decision.
func untilTrusted(t testing.TB, s *failover.Store, op core.Op) (d core.Decision) {
	t.Helper()
	failover.Until(t, "the trust", func() bool {
		local := s.Stats().Local
		var err error
		d, err = failover.Try(s, op)
		if err == nil && s.Stats().Local == local && s.State() == failover.Closed && failover.Trusts(s) {
			return true
		}
		time.Sleep(400 * time.Millisecond) // so that what memory has granted can be paid on a busy machine
		return false
	})
	return d
}

// outage takes the store through an outage and back. It returns how long the
// slowest call took, and how long after its return the primary was in use.
func outage(t *testing.T, server *redistest.Server, s *failover.Store, primary *counted, begin,
	end func(*redistest.Server)) (slowest, back time.Duration) {
	begin(server)
	calls, probes, asked, blamed, open := primary.calls.Load(), s.Stats().Probes, int64(0), 0, false
	for i := range 1000 {
		wasOpen, start := open, time.Now()
		_, err := failover.Try(s, failover.Taking(t, "k", "100000/1000h", 1))
		slowest = max(slowest, time.Since(start))
		if (err == nil) != (s.Fallback() != nil) {
			t.Fatal(err)
		}
		if err != nil && errors.Is(err, failover.ErrOpen) != wasOpen {
			t.Fatalf("call %d: %v", i+1, err)
		}
		if !wasOpen {
			asked++
			cause := s.Cause()
			if !errors.Is(cause, core.ErrOverload) { // else the machine stood still
				blamed++
			}
			open = errors.Is(cause, core.ErrSilent) || blamed >= failover.DefaultFailures
		}
		if got := s.State() == failover.Open; got != open {
			t.Fatalf("open %t after %d calls: %v", got, i+1, s.Cause())
		}
	}
	// A probe is noted before it calls.
	if sent := primary.calls.Load() - calls - int64(s.Stats().Probes-probes); sent > asked {
		t.Errorf("%d calls reached the primary besides probes, %d asked", sent, asked)
	}
	end(server)
	back = failover.Until(t, "the return", func() bool { return s.State() == failover.Closed })
	untilTrusted(t, s, failover.Taking(t, "k", "100000/1000h", 1))
	return slowest, back
}

// admittedThere is admitted by the primary alone. It also returns how many calls
// the fallback decided, because the machine stood still.
func admittedThere(t testing.TB, s *failover.Store, op core.Op) (n, late int) {
	t.Helper()

	// A call that the fallback decided in between was late and no refusal.
	for start := time.Now(); time.Since(start) < failover.Patience; {
		local := s.Stats().Local
		d := failover.One(t, s, op)
		switch {
		case s.Stats().Local != local:
			late++
		case d.Allowed:
			n++
		default:
			return n, late
		}
	}

	t.Fatalf("not refused within %s", failover.Patience)
	return n, late
}

// A fleet shares one Redis and one limit.
func TestRedisOutageGrantsTheLimitOnceMoreAtMost(t *testing.T) {
	for _, size := range []int{1, 3} {
		for _, fault := range faults {
			t.Run(fmt.Sprint(size, " ", fault.name), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				c := failover.Connect(t, server.Addr)

				// Each instance knows the size of the fleet from the beginning.
				var fleet []*failover.Store
				for range size {
					live := failover.Begin(t, c, failover.InstancesOptions{Prefix: "hg:", TTL: time.Hour,
						Expected: size})
					s, _ := inRedis(t, c, 200*time.Millisecond,
						failover.Options{Fallback: failover.Memory(), Instances: live.Live,
							Slow: 400 * time.Millisecond})
					fleet = append(fleet, s)
				}

				op := failover.Taking(t, "k", "30/1h fixed-window", 1)

				// The connections are made before the fault.
				if d := failover.One(t, fleet[0], failover.Taking(t, "warm", "30/1h fixed-window", 1)); !d.Allowed {
					t.Fatal("refused")
				}

				// In the outage the parts of all instances are granted, which make up the limit
				// once.
				fault.begin(server)
				local := 0
				for _, s := range fleet {
					local += failover.Admitted(t, s, op)
				}

				if local != 30 {
					t.Errorf("%d in the outage, want 30", local)
				}

				fault.end(server)
				failover.Until(t, "the return", func() bool {
					for _, s := range fleet {
						if s.State() == failover.Open {
							return false
						}
					}
					return true
				})

				// Back again, the primary admits what the debts of the first instance leave of its
				// thirty.
				// A call that timed out may have been charged.
				after, late := admittedThere(t, fleet[0], op)
				if most := 30 - 30/size; after > most || after < most-size*failover.DefaultFailures-late {
					t.Errorf("%d afterwards, and %d calls timed out", after, late)
				}

				for _, s := range fleet { // the last instance has learned that nothing is left
					if n := failover.Admitted(t, s, op); n != 0 {
						t.Errorf("%d more", n)
					}
				}

				_, all := patient(t, server.Addr)
				failover.EveryKeyExpires(t, all)

				// No instance grants anything in another outage: nothing is left.
				fault.begin(server)
				for _, s := range fleet {
					if n := failover.Admitted(t, s, op); n != 0 {
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
	s, _ := inRedis(t, failover.Connect(t, server.Addr), 200*time.Millisecond,
		failover.Options{Fallback: failover.Memory(), Slow: 400 * time.Millisecond})
	const text = "2 concurrent ttl=1h"

	// The lease is held at Redis, and then Redis freezes until the breaker opens.
	a := failover.Leasing(t, "a", text)
	d := untilTrusted(t, s, a) // to ask for it again renews it
	server.Freeze()
	calls := 0
	failover.Until(t, "the breaker opens", func() bool {
		// A call that the process itself has kept is no failure of Redis.
		calls++
		failover.One(t, s, failover.Leasing(t, fmt.Sprint("b", calls), text))
		return s.State() == failover.Open
	})

	// The release can only wait.
	failover.One(t, s, failover.Undo(a, d))
	if got := s.Stats(); got.State != failover.Open || got.Waits != 1 {
		t.Fatalf("%+v", got)
	}

	// It is made when Redis is back.
	server.Thaw()
	failover.Until(t, "the return", func() bool { return s.State() == failover.Closed && s.Stats().Waits == 0 })

	there, _ := patient(t, server.Addr)
	if got := failover.Remaining(t, there, a); got < 1 || s.Stats().Lost != 0 {
		t.Errorf("%d remain, %+v", got, s.Stats()) // a call that timed out may hold the other
	}
}

// A Redis whose memory is full reads, but writes no log.
func TestRedisThatCannotWriteStaysBypassed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	_, admin := patient(t, server.Addr)
	s, _ := inRedis(t, failover.Connect(t, server.Addr), failover.Patience,
		failover.Options{Fallback: failover.Memory(), ProbeInterval: 2 * time.Millisecond, Slow: failover.Patience})

	// The log of a sliding log is what cannot be written. Everything else goes on.
	op := failover.Taking(t, "k", "1000/1h sliding-log", 1)
	failover.One(t, s, op)
	if err := admin.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}

	// Probes have to write, or the breaker would close between the failures.
	failover.Until(t, "twenty probes", func() bool {
		failover.One(t, s, op)
		return s.Stats().Probes >= 20
	})

	if got := s.Stats(); got.Opened != 1 || got.State != failover.Open {
		t.Errorf("%+v", got)
	}

	// With memory again, it is in use again.
	if err := admin.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	failover.Until(t, "the return", func() bool { return s.State() == failover.Closed })
	failover.EveryKeyExpires(t, admin)
}
