package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
)

// TestMain draws fewer cases of each property than rapid does by default, unless the
// command line has -rapid.checks.
func TestMain(m *testing.M) {
	// A case asks a server many times. The model passes the properties in store/storetest, and
	// histories compare it with Redis.
	if err := flag.Set("rapid.checks", "20"); err != nil {
		panic(err)
	}
	test.Exit(m.Run(), test.SentinelLeak()...)
}

// The stock client is the control that must fail.
func TestLostReplyCountsOnce(t *testing.T) {
	addr := redistest.Addr(t)

	r := newRelay(t, addr)
	c := redis.NewClient(&redis.Options{
		Addr: r.addr, ContextTimeoutEnabled: true, ReadTimeout: patient,
		MinRetryBackoff: time.Millisecond, MaxRetryBackoff: time.Millisecond,
	})

	defer c.Close()
	prefix := redistest.Prefix(t)
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "100/1h fixed-window"), Cost: 1}
	apply(t, MustNew(c, Options{Prefix: prefix, Timeout: patient}), op)

	// The control counts through the client itself, with a script as plain as can be.
	count := redis.NewScript(`return redis.call('INCR', KEYS[1])`)
	ctx := context.Background()
	if err := count.Run(ctx, c, []string{prefix + "stock"}).Err(); err != nil {
		t.Fatal(err)
	}

	// Every call from here on is carried out, and its reply is lost.
	r.mute.Store(true)
	hasty := c.WithTimeout(200 * time.Millisecond) // on the connection that is open
	if err := MustNew(hasty, Options{Prefix: prefix, Timeout: time.Second}).Apply(ctx, []core.Op{op},
		make([]core.Decision, 1)); err == nil {
		t.Fatal("a decision without a reply")
	}
	if err := count.Run(ctx, hasty, []string{prefix + "stock"}).Err(); err == nil {
		t.Fatal("the control got a reply")
	}
	r.mute.Store(false)

	// The second hit may still be on its way when the caller has given up.
	direct := connect(t, addr)
	op.Verb = core.Peek
	var d core.Decision
	eventuallyTrue(t, "the second hit is not counted", func() bool {
		d = apply(t, MustNew(direct, Options{Prefix: prefix, Timeout: patient}), op)[0]
		return d.Remaining < 99
	})

	if d.Remaining != 98 {
		t.Errorf("%d of 100 remain after two hits", d.Remaining)
	}

	// It has four attempts, of which a slow machine may spend some on connecting.
	eventuallyTrue(t, "the stock client counts two hits once each, so the control proves nothing", func() bool {
		n, err := direct.Get(ctx, prefix+"stock").Int()
		return err == nil && n > 2
	})

	direct.Del(ctx, prefix+"stock")
}

// silent starts a server that accepts connections and sends nothing.
func silent(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// costsTheTimeout checks that a store in which nothing can be decided gives up at
// its timeout. The client's own timeouts have to be longer than the test is patient.
func costsTheTimeout(t *testing.T, what string, s *Store) {
	t.Helper()

	// The call is beside the test, which must not hang with it.
	start, done := time.Now(), make(chan error, 1)
	go func() {
		_, err := takeOne(context.Background(), s, "k")
		done <- err
	}()

	select {
	case err := <-done:
		took := time.Since(start)
		if err == nil || took < s.servers.budget() {
			t.Errorf("%s: error %v after %v, want one after %v", what, err, took, s.servers.budget())
		}
		test.AtMost(t, what+": an error", took, s.servers.budget()+20*time.Millisecond)
	case <-time.After(patient):
		t.Errorf("%s: no error after %v, want one after %v", what, patient, s.servers.budget())
	}
}

// A call to a frozen server ends at the timeout, whether or not the client heeds
// deadlines.
func TestFrozenServerCostsAtMostTheTimeout(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		c := redis.NewClient(&redis.Options{
			Addr: silent(t), ContextTimeoutEnabled: heeds, MaxRetries: -1,
			ReadTimeout: time.Hour, DialTimeout: time.Hour,
		})
		s := MustNew(c, Options{Timeout: 30 * time.Millisecond})
		if got := rediscall.TraitsOf(c).HeedsDeadlines; got != heeds {
			t.Fatalf("ContextTimeoutEnabled %v was read as %v", heeds, got)
		}
		costsTheTimeout(t, fmt.Sprint("ContextTimeoutEnabled ", heeds), s)
		c.Close()
	}
}

// The same in fake time, to the nanosecond: the server is the far end of a pipe.
func TestSilentServerCostsExactlyTheTimeout(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		inBubble(t, func(t *testing.T) {
			c := redis.NewClient(&redis.Options{
				Addr: "127.0.0.1:1", ContextTimeoutEnabled: heeds, MaxRetries: -1, ReadTimeout: time.Minute,
				DialerRetries: 1,
				// The far end reads and never writes.
				Dialer: func(context.Context, string, string) (net.Conn, error) {
					near, far := net.Pipe()
					go io.Copy(io.Discard, far)
					return near, far.SetDeadline(time.Now().Add(time.Hour))
				},
			})
			defer c.Close()

			s := MustNew(c, Options{})

			// The second call finds the connection that the first has left.
			for range 2 {
				start := time.Now()
				_, err := takeOne(context.Background(), s, "k")
				if took := time.Since(start); err == nil || took != DefaultTimeout {
					t.Errorf("heeding deadlines %t: %v after %v, want an error after %v", heeds, err, took,
						DefaultTimeout)
				}
			}

			time.Sleep(2 * time.Hour) // ends the server's goroutines
		})
	}
}

func TestContextThatIsDoneSendsNothing(t *testing.T) {
	s, c := fresh(t, redistest.Addr(t), Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "5/1h"), Cost: 1}
	if err := s.Apply(ctx, []core.Op{op}, make([]core.Decision, 1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if keys := keysOf(t, s, c); len(keys) != 0 {
		t.Errorf("%q were written", keys)
	}
}

// The error does not say that the port was refused, so another attempt may succeed.
func TestFailedDialIsTriedAgainUntilTheTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		failed := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route to host")}
		var dials atomic.Int64
		c := redis.NewClient(&redis.Options{
			Addr: east, ContextTimeoutEnabled: true, DialerRetries: 1,
			Dialer: func(context.Context, string, string) (net.Conn, error) { dials.Add(1); return nil, failed },
		})
		defer c.Close()

		s := MustNew(c, Options{Timeout: 30 * time.Millisecond})
		start := time.Now()
		_, err := takeOne(context.Background(), s, "k")
		took := time.Since(start)
		synctest.Wait()

		// A fifth pause, of 16 ms, would end after the timeout. The first attempt dials, and
		// so does the trial that it begins, both through the client and beside it. The next
		// trial is not due for 50 ms.
		if want := (1 + 2 + 4 + 8) * time.Millisecond; !errors.Is(err, failed) || took != want || dials.Load() != 2*2 {
			t.Errorf("%d dials, %v after %v, want 4 and the failure after %v", dials.Load(), err, took, want)
		}
	})
}

// fault is an error reply of a Redis server.
type fault string

func (f fault) Error() string { return string(f) }
func (fault) RedisError()     {}

func TestRetryOnlyIfNothingRan(t *testing.T) {
	// The server says that it did nothing, or the connection was never made.
	for err, want := range map[error]bool{
		fault("LOADING Redis is loading the dataset in memory"):          true,
		fault("READONLY You can't write against a read only replica."):   true,
		fault("CLUSTERDOWN Hash slot not served"):                        true,
		fault("TRYAGAIN Multiple keys request during rehashing of slot"): true,
		fault("MASTERDOWN Link with MASTER is down"):                     true,
		fault("NOREPLICAS Not enough good replicas to write."):           true,
		fault("BUSY Redis is busy running a script."):                    true,
		fault("ERR max number of clients reached"):                       true,
		redis.ErrPoolTimeout: true,
		&net.OpError{Op: "dial", Err: errors.New("connection refused")}: true,
		// What may have run, or would fail again in the same way.
		&net.OpError{Op: "read", Err: errors.New("connection reset")}:     false,
		fault("OOM command not allowed when used memory > 'maxmemory'."):  false,
		fault("NOPERM this user has no permissions to run the command"):   false,
		fault("WRONGTYPE Operation against a key holding the wrong kind"): false,
		context.DeadlineExceeded: false,
		errors.New("EOF"):        false,
	} {
		if got := neverRan(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// Only clients that may read on after a deadline need a goroutine for each call.
func TestTLSClientsOverstayUnderRESP3(t *testing.T) {
	addrs := []string{"127.0.0.1:1"}
	for _, row := range []struct {
		config   *tls.Config
		protocol int
		want     bool
	}{
		// Only TLS under RESP3, which is the default, reads on after a deadline.
		{nil, 0, false},
		{nil, 3, false},
		{&tls.Config{}, 0, true},
		{&tls.Config{}, 3, true},
		{&tls.Config{}, 2, false},
	} {
		for name, c := range map[string]redis.UniversalClient{
			"client": redis.NewClient(&redis.Options{
				Addr: addrs[0], TLSConfig: row.config, Protocol: row.protocol, ContextTimeoutEnabled: true}),
			"behind sentinels": redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: "m", SentinelAddrs: addrs, TLSConfig: row.config, Protocol: row.protocol,
				ContextTimeoutEnabled: true}),
			"cluster": redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: addrs, TLSConfig: row.config, Protocol: row.protocol, ContextTimeoutEnabled: true}),
			"ring": redis.NewRing(&redis.RingOptions{
				Addrs: map[string]string{"a": addrs[0]}, TLSConfig: row.config, Protocol: row.protocol,
				ContextTimeoutEnabled: true}),
		} {
			if traits := rediscall.TraitsOf(c); traits.HeedsDeadlines == row.want || traits.IgnoresDeadlines {
				t.Errorf("%s, TLS %t, protocol %d: heeds deadlines %t, is said to ignore them %t",
					name, row.config != nil, row.protocol, traits.HeedsDeadlines, traits.IgnoresDeadlines)
			}
			c.Close()
		}
	}
}
