package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/faultproxy"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestOnlyWhatADeadOrFormerMasterSaysDoubtsTheTopology(t *testing.T) {
	for err, want := range map[error]bool{
		fault("CLUSTERDOWN Hash slot not served"):                      true,
		fault("READONLY You can't write against a read only replica."): true,
		fault("MASTERDOWN Link with MASTER is down"):                   true,
		fault("LOADING Redis is loading the dataset in memory"):        true,
		io.EOF:                   true,
		io.ErrUnexpectedEOF:      true,
		redis.ErrPoolTimeout:     true,
		context.DeadlineExceeded: true,
		&net.OpError{Op: "dial", Err: errors.New("connection refused")}: true,
		&net.OpError{Op: "read", Err: errors.New("connection reset")}:   true,
		&net.DNSError{Err: "no such host"}:                              true,
		fmt.Errorf("wrapped: %w", fault("READONLY")):                    true,

		context.Canceled:                      false,
		redis.ErrClosed:                       false,
		redis.Nil:                             false,
		fault("NOSCRIPT No matching script."): false,
		fault("NOPERM this user has no permissions"):                      false,
		fault("WRONGPASS invalid username-password pair"):                 false,
		fault("NOREPLICAS Not enough good replicas to write."):            false,
		fault("BUSY Redis is busy running a script."):                     false,
		fault("OOM command not allowed when used memory > 'maxmemory'."):  false,
		fault("MISCONF Errors writing to disk"):                           false,
		fault("TRYAGAIN Multiple keys request during rehashing of slot"):  false,
		fault("WRONGTYPE Operation against a key holding the wrong kind"): false,
		fault("ERR Error compiling script (new function)"):                false,
		fault("ERR max number of clients reached"):                        false,
		ErrUnreadable: false,
		errReply:      false,
		core.ErrOp:    false,
	} {
		if got := doubtsTopology(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}

// mapped is a client of a Cluster that counts how often it asks who serves what:
// one server, which serves everything, unless o.ClusterSlots says that it is
// unknown.
func mapped(t *testing.T, addr string, asked *atomic.Int64, o redis.ClusterOptions) *redis.ClusterClient {
	t.Helper()
	o.Addrs, o.ContextTimeoutEnabled, o.DisableIdentity = []string{addr}, true, true
	known := o.ClusterSlots
	o.ClusterSlots = func(ctx context.Context) ([]redis.ClusterSlot, error) {
		asked.Add(1)
		if known != nil {
			if _, err := known(ctx); err != nil {
				return nil, err
			}
		}
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
	}
	c := redis.NewClusterClient(&o)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestAHealthyClusterIsNeverAskedWhoServesWhatAgain(t *testing.T) {
	server := redistest.Start(t)
	admin := connect(t, server.Addr)
	setUser(t, admin, documentedACL(t)...)
	var asked atomic.Int64
	c := mapped(t, server.Addr, &asked, redis.ClusterOptions{Username: "limiter", Password: "password"})
	s := MustNew(c, Options{Timeout: patient, OneSlot: true})
	ctx := context.Background()
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "3/1h"), Cost: 1}
	for range 5 {
		apply(t, s, op) // also refusals
	}
	admin.ScriptFlush(ctx)
	apply(t, s, op) // NOSCRIPT
	admin.RPush(ctx, string(s.key(nil, "list", "r", "g")), "x")
	list := op
	list.Key = "list"
	if err := s.Apply(ctx, []core.Op{list}, make([]core.Decision, 1)); !errors.Is(err, ErrUnreadable) {
		t.Error(err)
	}
	if err := s.Apply(ctx, []core.Op{{}}, make([]core.Decision, 1)); !errors.Is(err, core.ErrOp) {
		t.Error(err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Apply(canceled, []core.Op{op}, make([]core.Decision, 1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	foreign := MustNew(c, Options{Timeout: patient, Prefix: "foreign:"})
	if err := foreign.Apply(ctx, []core.Op{op}, make([]core.Decision, 1)); !errors.Is(err, ErrPermission) {
		t.Error(err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times who serves what, want once at the start", n)
	}
	// The control: a server that is only a replica now.
	orphan(t, admin, server)
	hasty := MustNew(c, Options{Timeout: 50 * time.Millisecond, OneSlot: true})
	if err := hasty.Apply(ctx, []core.Op{op}, make([]core.Decision, 1)); err == nil {
		t.Error("a replica decided")
	}
	eventuallyTrue(t, "a second question", func() bool { return asked.Load() > 1 })
}

func eventuallyTrue(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick, end := time.NewTicker(time.Millisecond), time.After(patient)
	defer tick.Stop()
	for !done() {
		select {
		case <-end:
			t.Fatal(what)
		case <-tick.C:
		}
	}
}

// However many calls fail, one goroutine at a time asks who serves what, five
// times a second at most, whether it is told or not, and it ends soon after the
// client is closed.
func TestAnOutageHasOneGoroutineAskWhoServesWhat(t *testing.T) {
	rest := func() {
		t.Helper()
		eventuallyTrue(t, "the clients before have come to rest", func() bool { return reloading() == 0 })
	}
	rest()
	clean := goleak.IgnoreCurrent()
	server := redistest.Start(t)
	for name, reply := range map[string]error{"told": nil, "not told": errors.New("nobody knows")} {
		proxy := faultproxy.New(t, server.Addr)
		var asked atomic.Int64
		var failing atomic.Bool
		c := mapped(t, proxy.Addr, &asked, redis.ClusterOptions{
			DialTimeout: 100 * time.Millisecond, DialerRetries: 1,
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				if failing.Load() {
					return nil, reply
				}
				return nil, nil
			},
		})
		s := MustNew(c, Options{Timeout: 20 * time.Millisecond, Prefix: redistest.Prefix(t)})
		eventually(t, s, "k")
		rest()
		failing.Store(true)
		proxy.Set(faultproxy.Fault{Refuse: true})
		start, first := time.Now(), asked.Load()
		var all sync.WaitGroup
		most := 0
		for range 10 {
			for range 100 {
				all.Go(func() { _, _ = takeOne(context.Background(), s, "k") })
			}
			all.Wait()
			most = max(most, reloading())
		}
		eventuallyTrue(t, "a question", func() bool { return asked.Load() > first })
		n := asked.Load() - first
		lasted := time.Since(start)
		t.Logf("%s: 1000 failures in %v asked %d times, by %d goroutines at a time", name, lasted, n, most)
		if n > 1+int64(lasted/relearn) {
			t.Errorf("%s: asked %d times in %v", name, n, lasted)
		}
		if most > 1 {
			t.Errorf("%s: %d goroutines at a time", name, most)
		}
		proxy.Close()
		c.Close()
	}
	server.Kill()
	eventuallyTrue(t, "a goroutine is left", func() bool { return goleak.Find(clean) == nil })
}

// reloading is how many goroutines of clients are asking, or pausing.
func reloading() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), "clusterStateHolder).LazyReload.func1(")
}
