//go:build linux

package clockfaults

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/tally"
	"github.com/headgate/headgate/store/redisstore"
)

// limits holds a limit of every algorithm and the time that it takes to refill.
var limits = []struct {
	text   string
	refill time.Duration
}{
	{"10/100s", 100 * time.Second},
	{"100/100s burst=3", 3 * time.Second},
	{"97/100m burst=2", 123711341 * time.Microsecond},
	{"10/100s token-bucket burst=15", 200 * time.Second},
	{"10/100s fixed-window", 100 * time.Second},
	{"10/100s fixed-window aligned", 100 * time.Second},
	{"10/100s sliding-log", 100 * time.Second},
	{"10/100s sliding-window", 110 * time.Second},
	{"10 concurrent ttl=100s", 100 * time.Second},
}

var steps = []time.Duration{
	-time.Second, -10 * time.Minute, -time.Hour, -10 * 365 * 24 * time.Hour,
	time.Second, 10 * time.Minute, time.Hour, 10 * 365 * 24 * time.Hour,
}

func open(t *testing.T, c *redis.Client) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(c, redisstore.Options{Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var lease atomic.Int64

// take takes one unit of the key.
func take(t *testing.T, s core.Store, key string, l core.Limit) core.Decision {
	t.Helper()
	op := core.Op{Rule: "rule", Key: key, Limit: l, Cost: 1, Lease: fmt.Sprint(lease.Add(1))}
	var out [1]core.Decision
	if err := s.Apply(context.Background(), []core.Op{op}, out[:]); err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// spend takes units until one is refused.
func spend(t *testing.T, s core.Store, key string, l core.Limit) (n int64, refused core.Decision) {
	t.Helper()
	for {
		if d := take(t, s, key, l); !d.Allowed {
			return n, d
		}
		n++
	}
}

// busy takes each unit of the key when it comes back, sixty times, so that its state
// differs from the state of a new key.
func busy(t *testing.T, s core.Store, key string, l core.Limit, refill time.Duration, servers ...server) {
	t.Helper()
	for range 60 {
		spend(t, s, key, l)
		for _, srv := range servers {
			srv.Step((refill / time.Duration(l.Capacity())).Truncate(time.Microsecond))
		}
	}
}

func TestShimMovesServerClock(t *testing.T) {
	srv := start(t, time.Hour)
	c := srv.connect(t)
	if ahead := time.Until(now(t, c)); ahead < 59*time.Minute {
		t.Fatalf("the server is %v ahead, want an hour", ahead)
	}
	srv.Step(-2 * time.Hour)
	if ahead := time.Until(now(t, c)); ahead > -59*time.Minute {
		t.Fatalf("the server is %v ahead, want an hour behind", ahead)
	}
}

// A step admits at most one burst more, and refuses for at most one refill.
func TestClockStep(t *testing.T) {
	srv := start(t, 0)
	s := open(t, srv.connect(t))
	for _, row := range limits {
		l := core.MustParseLimit(row.text)
		for _, step := range steps {
			key := fmt.Sprint(row.text, step)

			// A key of its own for each step, in a state like that of a long life.
			tally.Add(t, "steps of a server's clock", 1)
			began := time.Now()
			busy(t, s, key, l, row.refill, srv)
			spend(t, s, key, l)

			srv.Step(step)
			extra, refused := spend(t, s, key, l)
			if extra > l.Capacity()+returned(l, began) ||
				refused.RetryAfter > row.refill || refused.ResetAfter > row.refill {
				t.Errorf("%s, a step of %v: %d admitted and then %+v", row.text, step, extra, refused)
			}

			// A step back returns at most what rounding does. With aligned windows it may enter
			// another one.
			if step < 0 && !l.Aligned && extra > backwards(l)+returned(l, began) {
				t.Errorf("%s, a step of %v back admits %d", row.text, step, extra)
			}

			// The wait that a refusal names is enough, also right after a step.
			srv.Step(refused.RetryAfter)
			if d := take(t, s, key, l); !d.Allowed {
				t.Errorf("%s, a step of %v: refused again after %v: %+v", row.text, step, refused.RetryAfter, d)
			}
		}
	}
}

// returned is the number of units that have come back in real time since the test
// began, for example while the machine stood still.
func returned(l core.Limit, began time.Time) int64 {
	return int64(time.Since(began) / (l.Period / time.Duration(l.Quota)))
}

// backwards returns the number of units that a step back may return: a GCRA rounds up.
func backwards(l core.Limit) int64 {
	if l.Algorithm == core.GCRA {
		return 1
	}
	return 0
}

// A replica with another clock reads the counts of the master.
func TestClockOfPromotedReplica(t *testing.T) {
	for _, skew := range []time.Duration{time.Hour, -time.Hour, -10 * time.Minute, time.Second} {
		master := start(t, 0, "--repl-diskless-sync-delay", "0")
		host, port, _ := net.SplitHostPort(master.Addr)
		replica := start(t, skew, "--replicaof", host+" "+port)

		// All keys are spent before the replica takes over, so that each unit admitted later is one
		// too many.
		s, c := open(t, master.connect(t)), replica.connect(t)
		began := time.Now()
		for _, row := range limits {
			l := core.MustParseLimit(row.text)
			busy(t, s, row.text, l, row.refill, master, replica)
			spend(t, s, row.text, l)
		}

		// The replica has all counts: what replication may lose is no matter of clocks.
		caughtUp(t, master.connect(t))
		if err := c.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}

		promoted := open(t, c)
		for _, row := range limits {
			l := core.MustParseLimit(row.text)
			extra, refused := spend(t, promoted, row.text, l)
			if extra > l.Capacity()+returned(l, began) ||
				refused.RetryAfter > row.refill || refused.ResetAfter > row.refill {
				t.Errorf("%s, %v ahead: %d admitted and then %+v", row.text, skew, extra, refused)
			}

			// One clock serves all limits: each moves it on for its own wait, and then back.
			replica.Step(refused.RetryAfter)
			if d := take(t, promoted, row.text, l); !d.Allowed {
				t.Errorf("%s, %v ahead: refused again after %v: %+v", row.text, skew, refused.RetryAfter, d)
			}
			replica.Step(-refused.RetryAfter)
		}
	}
}

// caughtUp waits until the replica has the data of the master.
func caughtUp(t *testing.T, master *redis.Client) {
	t.Helper()
	for range 300 {
		if n, err := master.Wait(t.Context(), 1, 100*time.Millisecond).Result(); err == nil && n == 1 {
			return
		}
	}
	t.Fatal("the replica does not catch up")
}

// The clock steps forwards and backwards under constant load.
func TestClockStepUnderLoad(t *testing.T) {
	srv := start(t, 0)
	s := open(t, srv.connect(t))
	l := core.MustParseLimit("50/500s")

	var admitted atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				if take(t, s, "key", l).Allowed {
					admitted.Add(1)
				}
			}
		})
	}

	// Callers go on through all steps, which go both ways.
	began := time.Now()
	walk := []time.Duration{-time.Hour, time.Hour, -time.Minute, -time.Hour,
		2 * time.Hour, -time.Second, -time.Hour, 30 * time.Minute}
	for _, step := range walk {
		settled(t, s, l)
		srv.Step(step)
	}
	settled(t, s, l)

	stop()
	callers.Wait()

	// A step may give one burst back, and real time a unit each ten seconds.
	bound := int64(1+len(walk))*l.Capacity() + int64(time.Since(began)/(10*time.Second)) + 1
	if n := admitted.Load(); n > bound {
		t.Errorf("%d admitted, at most %d are allowed", n, bound)
	}
}

// settled waits until the callers have taken all units.
func settled(t *testing.T, s core.Store, l core.Limit) {
	t.Helper()
	for range 50 {
		take(t, s, "another key", l)
	}

	// The calls of another key have given the callers time to be served after the step.
	for {
		op := core.Op{Verb: core.Peek, Rule: "rule", Key: "key", Limit: l, Cost: 1}
		var out [1]core.Decision
		if err := s.Apply(t.Context(), []core.Op{op}, out[:]); err != nil {
			t.Fatal(err)
		}
		if !out[0].Allowed {
			return
		}
	}
}
