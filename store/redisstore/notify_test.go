package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/events"
)

// callsTold keeps the calls that a store tells.
type callsTold struct {
	mu   sync.Mutex
	list []events.StoreCall
}

func (c *callsTold) hooks() *events.Hooks {
	return &events.Hooks{StoreCall: func(e events.StoreCall) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.list = append(c.list, e)
	}}
}

func (c *callsTold) take() []events.StoreCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.list
	c.list = nil
	return list
}

// A call is told with its size and its time, whether its steps are sent alone or together.
func TestStoreCallsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told callsTold
		s := faked(t, &fake{wait: slow}, Options{Batch: 4})

		s.Report().Listen(told.hooks())
		each(9, func(_ int, key string) {
			if _, err := takeOne(t.Context(), s, key); err != nil {
				t.Error(err)
			}
		})

		synctest.Wait()
		got := told.take()
		slices.SortFunc(got, func(a, b events.StoreCall) int { return a.Steps - b.Steps })

		// Two calls alone, then what waited: a full one of four and the rest.
		var want []events.StoreCall
		for _, n := range []int{1, 1, 3, 4} {
			want = append(want, events.StoreCall{Store: "redis", Steps: n, Ops: n, Took: latency})
		}

		if !reflect.DeepEqual(got, want) {
			t.Errorf("told %+v, want %+v", got, want)
		}
	})
}

func TestStoreCallErrorsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told callsTold
		full := fault("OOM command not allowed when used memory > 'maxmemory'.")
		f := &fake{wait: func(context.Context, int) error { return full }}
		s := faked(t, f, Options{})
		s.Report().Listen(told.hooks())
		err := s.Apply(t.Context(), unit(), make([]core.Decision, 1))
		want := []events.StoreCall{{Store: "redis", Steps: 1, Ops: 1, Err: err, Type: events.OOM}}
		if got := told.take(); !errors.Is(err, full) || !reflect.DeepEqual(got, want) {
			t.Errorf("told %+v, want %+v", got, want)
		}
	})
}

func TestTypesOfErrors(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	late := &net.OpError{Op: "read", Err: deadlineError{}}
	for _, row := range []struct {
		err  error
		want string
	}{
		// The first times, of contexts, pools and connections alike, are timeouts.
		{nil, ""},
		{context.DeadlineExceeded, "timeout"},
		{&lateError{context.DeadlineExceeded}, "timeout"},
		{redis.ErrPoolTimeout, "timeout"},
		{late, "timeout"},
		{&net.OpError{Op: "dial", Err: deadlineError{}}, "timeout"},
		{refused, "refused"},
		{&dialError{refused}, "refused"},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}, "refused"},
		// What a script or its data is at fault for.
		{fault("NOSCRIPT No matching script."), "script"},
		{fault("BUSY Redis is busy running a script."), "script"},
		{fault("ERR Error running script (call to f): user_script:1"), "script"},
		{fault("WRONGTYPE Operation against a key holding the wrong kind of value"), "script"},
		{ErrUnreadable, "script"},
		{fault("READONLY You can't write against a read only replica."), "readonly"},
		{fault("MISCONF Redis is configured to save RDB snapshots"), "readonly"},
		{fault("NOREPLICAS Not enough good replicas to write."), "readonly"},
		{fault("MASTERDOWN Link with MASTER is down"), "readonly"},
		{fault("OOM command not allowed"), "oom"},
		{fault("NOPERM this user has no permissions"), "auth"},
		{ErrCredentials, "auth"},
		{ErrPermission, "auth"},
		// Conditions that pass by themselves have no type of their own.
		{fault("LOADING Redis is loading the dataset in memory"), "other"},
		{fault("CLUSTERDOWN Hash slot not served"), "other"},
		{io.EOF, "other"},
	} {
		// Wrapped as the store wraps it, the type is the same.
		for _, err := range []error{row.err, fmt.Errorf("redisstore: %w", row.err)} {
			if row.err == nil && err != nil {
				continue
			}

			if got := typeOf(err).String(); got != row.want {
				t.Errorf("%v: %q, want %q", err, got, row.want)
			}
		}
	}
}

// deadlineError is the error of a connection after its deadline.
type deadlineError struct{}

func (deadlineError) Error() string { return "i/o timeout" }
func (deadlineError) Timeout() bool { return true }

func TestCachedRefusalsAreTold(t *testing.T) {
	s, _ := fresh(t, redistest.Addr(t), Options{CacheRefusals: 10})
	var told []string
	s.Report().Listen(&events.Hooks{CachedRefusal: func(rule string) { told = append(told, rule) }})
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "1/1h"), Cost: 1}

	// One is granted and one refused by Redis; the two after it are answered here.
	for range 4 {
		apply(t, s, op)
	}

	if want := []string{"r", "r"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}

	if got, want := s.Report().Status(nil), []events.StoreStatus{{Store: "redis", Of: s, Servers: "standalone",
		CachedRefusals: 2}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The error of a server that was killed says why, though the client only knows its deadline. The
// first does, as TestDialRefusedIsTheCause says in fake time, unless the machine is late.
func TestErrorOfADeadServerHasItsCause(t *testing.T) {
	t.Parallel()

	// Each client that the store can dial beside: of one server with both kinds of options, and a
	// Ring.
	for name, client := range map[string]func(addr string) redis.UniversalClient{
		"server": func(addr string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		},
		"server, default options": func(addr string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr})
		},
		"Ring": func(addr string) redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addr}, ContextTimeoutEnabled: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			c := client(server.Addr)
			defer c.Close()

			s := MustNew(c, Options{Prefix: redistest.Prefix(t)})
			var told callsTold
			s.Report().Listen(told.hooks())

			// One decision proves the dial, so that later errors may rely on it.
			eventually(t, s, "k")
			server.Kill()

			// A machine that is slow may be late before the dial is refused: such an error proves
			// nothing.
			err := core.ErrOverload
			for end := time.Now().Add(patient); isLate(err) || errors.Is(err, core.ErrOverload); {
				told.take()
				_, err = takeOne(context.Background(), s, "k")
				if time.Now().After(end) { // or else the machine was late for the dial
					break
				}
			}

			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%v", err)
			}

			if got := told.take(); len(got) != 1 || got[0].Type != events.Dial ||
				!errors.Is(got[0].Err, syscall.ECONNREFUSED) {
				t.Errorf("told %+v", got)
			}
		})
	}
}

// So does that of a master of a Cluster.
func TestErrorOfADeadMasterHasItsCause(t *testing.T) {
	t.Parallel()
	servers := redistest.Cluster(t, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(servers), ContextTimeoutEnabled: true})
	defer c.Close()
	s := MustNew(c, Options{Prefix: redistest.Prefix(t)})
	eventually(t, s, "k")

	// The client has its table before its master dies.
	eventuallyTrue(t, "no table", func() bool { return s.topology.shard("k") != "" })
	at := slices.IndexFunc(servers, func(server *redistest.Server) bool { return server.Addr == s.topology.shard("k") })
	servers[at].Kill()

	err := core.ErrOverload
	for end := time.Now().Add(patient); isLate(err) || errors.Is(err, core.ErrOverload); {
		_, err = takeOne(context.Background(), s, "k")
		if time.Now().After(end) { // or else the machine was late for the dial
			break
		}
	}

	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
}
