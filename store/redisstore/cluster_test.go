package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
)

func TestClusterCallsHoldStepsOfOneSlot(t *testing.T) {
	type wrapped struct{ redis.UniversalClient }

	one := redis.NewClient(&redis.Options{})
	many := redis.NewClusterClient(&redis.ClusterOptions{})
	ring := redis.NewRing(&redis.RingOptions{})
	defer one.Close()
	defer many.Close()
	defer ring.Close()

	for _, row := range []struct {
		client redis.UniversalClient
		o      Options
		want   sharing
	}{
		// One server has all keys. A Cluster has those of a slot together, and with OneSlot all.
		{one, Options{}, shareAll}, {one, Options{Batch: 1}, shareNone},
		{many, Options{}, shareSlot}, {many, Options{OneSlot: true}, shareAll},
		{many, Options{OneSlot: true, Batch: 1}, shareNone},
		// Of a Ring and of a foreign client nothing is known, unless the program says so.
		{ring, Options{}, shareNone}, {ring, Options{OneSlot: true}, shareAll},
		{wrapped{one}, Options{}, shareNone}, {wrapped{many}, Options{OneSlot: true}, shareAll},
	} {
		if got := MustNew(row.client, row.o).wire.shared; got != row.want {
			t.Errorf("%T with %+v shares %d, not %d", row.client, row.o, got, row.want)
		}
	}
}

func TestSlotsAreThoseOfRedis(t *testing.T) {
	t.Parallel()

	// The check value of the polynomial.
	if got := crc16([]byte("123456789")); got != 0x31c3 {
		t.Errorf("CRC-16/XMODEM is %#x", got)
	}
	c := cluster(t)

	// With a secret the digest is in the key, and so in its slot.
	for _, o := range []Options{{}, {Secret: []byte("sixteen bytes of it")}} {
		s := MustNew(c, o)
		for _, subject := range subjects {
			key := string(s.wire.key(nil, subject, "r", "g"))

			want, err := c.ClusterKeySlot(context.Background(), key).Result()
			if err != nil {
				t.Fatal(err)
			}

			if got := s.wire.slotOf([]core.Op{{Key: subject}}); int64(got) != want {
				t.Errorf("%q is in slot %d, not %d", key, want, got)
			}
		}
	}
}

// One busy subject and many others, all at once: every count is exact, no script
// gets keys of two slots, and the busy one's steps share calls.
func TestClusterStepsOfABusySubjectShareCalls(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	s := MustNew(c, Options{Timeout: patient})

	l := limit(t, "37/1h fixed-window")
	var admitted, others atomic.Int64
	var all sync.WaitGroup
	for i := range 400 {
		// Every step of the busy subject has two rules, both of which have to be asked.
		all.Go(func() {
			ops := []core.Op{{Rule: "r", Key: "busy", Limit: l, Cost: 1},
				{Rule: "q", Key: "busy", Limit: limit(t, "1000/1h"), Cost: 1}}
			out := make([]core.Decision, 2)
			if err := s.Apply(context.Background(), ops, out); err != nil {
				t.Error(err)
			}
			if out[0].Allowed {
				admitted.Add(1)
			}

			// Four other subjects, each for a hundred callers.
			ops[0].Key = fmt.Sprint("other ", i%4)
			if err := s.Apply(context.Background(), ops[:1], out); err != nil {
				t.Error(err)
			}
			if out[0].Allowed {
				others.Add(1)
			}
		})
	}

	all.Wait()
	if admitted.Load() != 37 || others.Load() != 4*37 {
		t.Errorf("%d and %d admitted", admitted.Load(), others.Load())
	}

	// 800 steps were decided with fewer calls, which the servers have counted.
	var sent int64
	err := c.ForEachMaster(context.Background(), func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "commandstats").Result()
		for line := range strings.Lines(info) {
			var calls int64
			if n, _ := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,", &calls); n == 1 {
				atomic.AddInt64(&sent, calls)
			}
		}
		return err
	})
	if err != nil || sent >= 800 {
		t.Errorf("%d calls for 800 steps, %v", sent, err)
	}
}

// The steps of a slot wait for those of their slot alone, and nothing is kept of
// it once they are decided.
func TestClusterSlotsAreQueuedApart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		// The server takes its time for each call, so steps pile up behind it.
		f := &fake{wait: slow}
		s := faked(t, f, Options{})
		s.wire.shared = shareSlot

		start := time.Now()

		// Two subjects in turn, five steps each.
		each(10, func(i int, _ string) {
			ops := []core.Op{{Rule: fmt.Sprint(i), Key: string("ab"[i%2]),
				Limit: core.Limit{Quota: 1000, Period: 1e9}, Cost: 1}}
			out := make([]core.Decision, 1)
			if err := s.Apply(context.Background(), ops, out); err != nil || !out[0].Allowed {
				t.Errorf("caller %d: %+v, %v", i, out[0], err)
			}

			// Two calls of each slot are under way, and the third has the rest.
			if took, want := time.Since(start), latency*time.Duration(1+min(i/4, 1)); took != want {
				t.Errorf("caller %d took %v, want %v", i, took, want)
			}
		})

		if got, want := fmt.Sprint(f.seen()), "[[a] [a] [a a a] [b] [b] [b b b]]"; got != want {
			t.Errorf("calls %s, want %s", got, want)
		}
		idle(t, s)
	})
}

func cluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: redistest.Addrs(redistest.Cluster(t, 3)), ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// steps about two subjects whose keys are on different nodes: what each allows
// and leaves must be the same as in one step.
func TestClusterStepsOfSubjectsAreAllOrNothing(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	now := int64(1_800_000_000_000_000)

	// The single server decides the same steps in one script, and is the reference.
	for _, o := range []Options{{}, {OneSlot: true}} {
		o.Prefix, o.Timeout, o.Clock = redistest.Prefix(t), patient, func() int64 { return now }

		s := MustNew(c, o)
		single := MustNew(connect(t, redistest.Addr(t)), o)
		for _, text := range everyAlgorithm {
			l := limit(t, text)
			op := func(verb core.Verb, key string, cost int64) core.Op {
				return core.Op{Verb: verb, Rule: "r", Key: key, Limit: l, Cost: cost, Lease: "l"}
			}

			// Rows that are allowed, refused by a subject in the middle, or mixed with reads; then
			// what is left.
			for _, ops := range [][]core.Op{
				{op(core.Take, "alice", 4), op(core.Take, "bob", 3)},
				{op(core.Take, "carol", 1), op(core.Take, "bob", 11), op(core.Take, "dave", 1)},
				{op(core.Take, "erin", 2), op(core.Take, "bob", 11), op(core.Peek, "alice", 1),
					op(core.Take, "erin", 1)},
				{op(core.Peek, "alice", 0), op(core.Peek, "bob", 0), op(core.Peek, "carol", 0),
					op(core.Peek, "dave", 0)},
				{op(core.Reset, "alice", 0), op(core.Reset, "bob", 0)},
			} {
				now += 1000
				want := apply(t, single, slices.Clone(ops)...)
				if got := apply(t, s, ops...); !slices.Equal(got, want) {
					t.Errorf("%s, one slot %v: %+v\n got %+v\nwant %+v", text, o.OneSlot, ops, got, want)
				}
			}
		}
	}
}

// A subject that cannot be decided leaves the others uncharged.
func TestClusterGivesBackIfALaterSubjectFails(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	s := MustNew(c, Options{Prefix: redistest.Prefix(t), Timeout: patient})

	l := limit(t, "10/1h fixed-window")
	a := core.Op{Rule: "r", Key: "a", Limit: l, Cost: 4}
	b := core.Op{Rule: "r", Key: "b", Limit: l, Cost: 1}

	// The second subject's key is a list, so its part fails after the first was charged.
	if err := c.RPush(context.Background(), string(s.wire.key(nil, "b", "r", "f")), "x").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(context.Background(), []core.Op{a, b}, make([]core.Decision, 2)); err == nil {
		t.Fatal("a list was read")
	}

	// Nothing of the first is left used.
	a.Verb = core.Peek
	if d := apply(t, s, a)[0]; d.Remaining != 10 {
		t.Errorf("%d remain", d.Remaining)
	}
}

// A refund that fails keeps no other refund from being made.
func TestClusterGivesBackAfterAFailedRefund(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	s := MustNew(c, Options{Prefix: redistest.Prefix(t), Timeout: patient})

	l := limit(t, "10/1h fixed-window")
	parts := bySubject([]core.Op{{Rule: "r", Key: "a", Limit: l, Cost: 4}, {Rule: "r", Key: "b", Limit: l, Cost: 4}})

	// Both subjects are charged, as in a step that fails later.
	for _, p := range parts {
		p.out = apply(t, s, p.ops...)
	}

	// The refund of the first one fails for its key.
	a := string(s.wire.key(nil, "a", "r", "f"))
	if err := errors.Join(c.Del(context.Background(), a).Err(),
		c.RPush(context.Background(), a, "x").Err()); err != nil {
		t.Fatal(err)
	}

	if err := s.dispatcher.withdraw(context.Background(), parts); err == nil ||
		strings.Count(err.Error(), "refunding another subject") != 1 {
		t.Errorf("%v, want one failed refund", err)
	}

	if d := apply(t, s, core.Op{Verb: core.Peek, Rule: "r", Key: "b", Limit: l})[0]; d.Remaining != 10 {
		t.Errorf("%d of b's 10 remain", d.Remaining)
	}
}

func TestRingIsAskedSubjectBySubject(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{
		Addrs:                 map[string]string{"a": redistest.Start(t).Addr, "b": redistest.Start(t).Addr},
		ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { ring.Close() })

	s := MustNew(ring, Options{Timeout: patient})
	l := limit(t, "3/1h fixed-window")

	// How much of UpTo can be taken is not known without asking both servers at once.
	two := []core.Op{{Rule: "r", Key: "a", Limit: l, Cost: 2, UpTo: true},
		{Rule: "r", Key: "b", Limit: l, Cost: 2, UpTo: true}}
	if err := s.Apply(t.Context(), two, make([]core.Decision, 2)); !errors.Is(err, core.ErrOp) {
		t.Errorf("UpTo Takes of two subjects: %v", err)
	}

	// One subject is on one server, so there it works.
	two[1].Key, two[1].Rule = "a", "q"
	if out := apply(t, s, two...); out[0].Taken != 2 || out[1].Taken != 2 {
		t.Errorf("UpTo Takes of one subject: %+v", out)
	}

	two[1].Verb, two[0].Key = core.Reset, "a"
	two[1].UpTo, two[1].Rule = false, "r"
	apply(t, s, two[1])

	// Some of the pairs are on two servers: the friend's refusal gives back what the first took.
	for i := range 20 {
		key := string(rune('a' + i))
		ops := []core.Op{{Rule: "r", Key: key, Limit: l, Cost: 2},
			{Rule: "r", Key: key + "'s friend", Limit: l, Cost: 4}}
		if out := apply(t, s, ops...); !out[0].Allowed || out[1].Allowed || out[0].Remaining != 3 {
			t.Errorf("%s: %+v", key, out)
		}
	}
}

func TestClusterErrorsThatDoubtTheTopology(t *testing.T) {
	// What a server says of its role, and connections that fail, may mean that slots have moved.
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

// mapped returns a client of a Cluster that counts how often it reloads the topology:
// one server that serves every slot, unless o.ClusterSlots says that it is unknown.
func mapped(t *testing.T, addr string, asked *atomic.Int64, o redis.ClusterOptions) *redis.ClusterClient {
	t.Helper()
	o.Addrs, o.ContextTimeoutEnabled, o.DisableIdentity = []string{addr}, true, true

	known := o.ClusterSlots
	o.ClusterSlots = func(ctx context.Context) ([]redis.ClusterSlot, error) {
		asked.Add(1)

		// The caller's function may fail or wait in place of the answer.
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

func TestClusterHealthyDoesNotReloadTheTopology(t *testing.T) {
	server := redistest.Start(t)
	admin := connect(t, server.Addr)
	setUser(t, admin, documentedACL(t)...)
	var asked atomic.Int64

	c := mapped(t, server.Addr, &asked, redis.ClusterOptions{Username: "limiter", Password: "password"})
	s := MustNew(c, Options{Timeout: patient, OneSlot: true})

	ctx := context.Background()
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "3/1h"), Cost: 1}

	// Three are allowed and two refused, then the scripts are gone.
	for range 5 {
		apply(t, s, op) // also refusals
	}
	admin.ScriptFlush(ctx)
	apply(t, s, op) // NOSCRIPT

	// Errors of keys, of the caller, and of permissions say nothing about slots.
	admin.RPush(ctx, string(s.wire.key(nil, "list", "r", "g")), "x")
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
		t.Errorf("the topology was loaded %d times, want once at the start", n)
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

// However many calls fail, one goroutine at a time reloads the topology, at most five
// times a second, whether a server answers or not, and it ends soon after the client
// is closed. A round of connecting begins with a question too, and is as rare.
func TestClusterOutageReloadsInOneGoroutine(t *testing.T) {
	// Goroutines of earlier clients would be counted too.
	rest := func() {
		t.Helper()
		eventuallyTrue(t, "the clients before have come to rest", func() bool { return reloading() == 0 })
	}

	rest()
	clean := goleak.IgnoreCurrent()
	server := redistest.Start(t)
	for name, reply := range map[string]error{"answered": nil, "failed": errors.New("not known")} {
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

		// From here on nothing connects, and the questions are answered or fail.
		failing.Store(true)
		proxy.Set(faultproxy.Fault{Refuse: true})
		start, first := time.Now(), asked.Load()

		var all sync.WaitGroup
		most := 0

		// A thousand calls fail.
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

		// One question at a time, no sooner than reloadPause allows, and one for each round of
		// connecting.
		if n > 1+int64(lasted/reloadPause)+1+int64(lasted/reconnect) {
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

// reloading returns how many goroutines of clients are asking, or pausing.
func reloading() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), "clusterStateHolder).LazyReload.func1(")
}
