package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
)

// absence is a way in which a server is not there yet.
type absence struct {
	name  string
	pool  int
	fault faultproxy.Fault
}

// A program may start before its Redis: each call fails in time. Once the server
// is there, the same store decides and its findings are logged.
func TestServerAbsentAtStartNeedsNoRestart(t *testing.T) {
	t.Parallel()
	for _, start := range []absence{
		{"refused", 20, faultproxy.Fault{Refuse: true}},
		{"refused, few connections", 2, faultproxy.Fault{Refuse: true}},
		{"silent", 20, faultproxy.Fault{Silent: true}},
		{"silent, few connections", 2, faultproxy.Fault{Silent: true}},
	} {
		t.Run(start.name, func(t *testing.T) {
			t.Parallel()
			startBefore(t, start)
		})
	}
}

// startBefore starts a store before its server.
func startBefore(t *testing.T, start absence) {
	t.Helper()

	// The policy for a full memory is a finding, so there is something to be logged once the server
	// is there.
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	proxy := faultproxy.New(t, server.Addr)
	proxy.Set(start.fault)

	c := redis.NewClient(&redis.Options{
		Addr: proxy.Addr, ContextTimeoutEnabled: true, PoolSize: start.pool,
		DialTimeout: 300 * time.Millisecond, ReadTimeout: 300 * time.Millisecond,
	})
	defer c.Close()

	// New must not wait for a server: a program starts before its Redis.
	s := MustNew(c, Options{Prefix: redistest.Prefix(t), Timeout: 50 * time.Millisecond})
	if n := proxy.Counts().Connections; n != 0 {
		t.Errorf("%s: New made %d connections", start.name, n)
	}

	w := &firstLine{done: make(chan struct{})}
	l := limiter.MustNew(limiter.Config{Store: s, Logger: slog.New(slog.NewTextHandler(w, nil)), Rules: []limiter.Rule{{
		Name: "r", OnStoreError: limiter.FailClosed, Limit: limit(t, "100000/1h"),
		Key: func(core.Request) (string, bool) { return "k", true },
	}}})
	defer l.Close()

	begun := time.Now()
	if _, err := l.Take(context.Background(), "k", 1); err == nil {
		t.Errorf("%s: a decision", start.name)
	}
	test.AtMost(t, "an error without a server", time.Since(begun), s.servers.budget()+20*time.Millisecond)

	proxy.Set(faultproxy.Fault{})

	// A client whose connections have all been refused dials once a second.
	test.AtMost(t, "a decision after the server came", eventually(t, s, "other"), time.Second+100*time.Millisecond)
	awaitLogged(t, l, w, "code=HG007")
}

// awaitLogged sends requests until the first finding is logged.
func awaitLogged(t *testing.T, l *limiter.Limiter, w *firstLine, want string) {
	t.Helper()

	tick, end := time.NewTicker(5*time.Millisecond), time.After(patient)
	defer tick.Stop()

	// The log is written beside the requests, which go on until it is there.
	for {
		select {
		case <-w.done:
			if !strings.Contains(w.text.String(), want) {
				t.Errorf("%s", &w.text)
			}
			return
		case <-tick.C:
			_, _ = l.Take(context.Background(), "k", 1) // may fail while the client still waits to dial
		case <-end:
			t.Error("nothing was logged")
			return
		}
	}
}

// Few connections, a slow network and many callers: sharing calls decides all of
// them in a few round trips. A client that gets every step alone cannot, and then
// no caller waits for longer than the timeout.
func TestTwoConnectionsServeManyCallersInTime(t *testing.T) {
	const callers, timeout, most = 200, 400 * time.Millisecond, 420 * time.Millisecond

	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	single := redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true, PoolSize: 2,
		PoolTimeout: patient})
	defer single.Close()

	// The first client shares calls, and its callers are patient enough for all of them.
	decided, slowest := crowd(t, proxy, server, single, callers, patient)
	if decided != callers {
		t.Errorf("shared calls: %d of %d decided", decided, callers)
	}
	test.AtMost(t, "shared calls: the slowest decision", slowest, most)

	// A Ring gets every step alone: two connections cannot carry 200 steps in the time.
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": proxy.Addr}, ContextTimeoutEnabled: true, PoolSize: 2,
	})
	defer ring.Close()

	decided, slowest = crowd(t, proxy, server, ring, callers, timeout)
	t.Logf("calls of one step: %d of %d decided", decided, callers)
	test.AtMost(t, "calls of one step: the slowest answer", slowest, most)
}

// crowd has many callers ask at once over a network that takes 20 ms, and returns
// how many got a decision, and when the last got an answer.
func crowd(t *testing.T, proxy *faultproxy.Proxy, server *redistest.Server, c redis.UniversalClient,
	callers int, timeout time.Duration) (decided int, slowest time.Duration) {
	t.Helper()
	prefix := redistest.Prefix(t)
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "1000/1h fixed-window"), Cost: 1}
	apply(t, MustNew(c, Options{Prefix: prefix, Timeout: patient}), op)
	s := MustNew(c, Options{Prefix: prefix, Timeout: timeout})
	proxy.Set(faultproxy.Fault{Delay: 20 * time.Millisecond})
	var all sync.WaitGroup
	took, errs := make([]time.Duration, callers), make([]error, callers)
	for i := range callers {
		all.Go(func() {
			start := time.Now()
			errs[i] = s.Apply(context.Background(), []core.Op{op}, make([]core.Decision, 1))
			took[i] = time.Since(start)
		})
	}
	all.Wait()
	proxy.Set(faultproxy.Fault{})
	for i, err := range errs {
		if err == nil {
			decided++
		} else if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redis.ErrPoolTimeout) &&
			!isTimeout(err) {
			t.Errorf("%T: %v", c, err)
		}
		slowest = max(slowest, took[i])
	}
	// A call that was sent may count without an answer, and none counts twice.
	op.Verb = core.Peek
	patiently := MustNew(connect(t, server.Addr), Options{Prefix: prefix, Timeout: patient})
	if used := int(1000 - apply(t, patiently, op)[0].Remaining); used < decided+1 || used > callers+1 {
		t.Errorf("%T: %d decided and %d counted of %d", c, decided, used, callers)
	}
	return decided, slowest
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}
