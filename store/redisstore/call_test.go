package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The stock client is the control that must fail.
func TestAHitWhoseReplyIsLostIsCountedOnce(t *testing.T) {
	addr := redistest.Addr(t)
	r := newRelay(t, addr)
	c := redis.NewClient(&redis.Options{
		Addr: r.addr, ContextTimeoutEnabled: true, ReadTimeout: 20 * time.Millisecond,
		MinRetryBackoff: time.Millisecond, MaxRetryBackoff: time.Millisecond,
	})
	defer c.Close()
	prefix := redistest.Prefix(t)
	s := MustNew(c, Options{Prefix: prefix, Timeout: time.Second})
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "100/1h fixed-window"), Cost: 1}
	apply(t, s, op)
	count := redis.NewScript(`return redis.call('INCR', KEYS[1])`)
	ctx := context.Background()
	if err := count.Run(ctx, c, []string{prefix + "stock"}).Err(); err != nil {
		t.Fatal(err)
	}

	r.mute.Store(true)
	if err := s.Apply(ctx, []core.Op{op}, make([]core.Decision, 1)); err == nil {
		t.Fatal("a decision without a reply")
	}
	if err := count.Run(ctx, c, []string{prefix + "stock"}).Err(); err == nil {
		t.Fatal("the control got a reply")
	}
	r.mute.Store(false)

	direct := connect(t, addr)
	op.Verb = core.Peek
	if d := apply(t, MustNew(direct, Options{Prefix: prefix, Timeout: patient}), op)[0]; d.Remaining != 98 {
		t.Errorf("%d of 100 remain after two hits", d.Remaining)
	}
	if n := direct.Get(ctx, prefix+"stock").Val(); n != "5" {
		t.Errorf("the stock client counted two hits %s times, so the control no longer proves anything", n)
	}
	direct.Del(ctx, prefix+"stock")
}

// silent is a server that accepts and says nothing.
func silent(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// Whatever the client is like, a frozen server costs the timeout.
func TestAFrozenServerCostsNoMoreThanTheTimeout(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		c := redis.NewClient(&redis.Options{
			Addr: silent(t), ContextTimeoutEnabled: heeds, MaxRetries: -1,
			ReadTimeout: 400 * time.Millisecond, DialTimeout: 400 * time.Millisecond,
		})
		s := MustNew(c, Options{Timeout: 30 * time.Millisecond})
		if s.heedsDeadline != heeds {
			t.Fatalf("ContextTimeoutEnabled %v was read as %v", heeds, s.heedsDeadline)
		}
		costsTheTimeout(t, fmt.Sprint("ContextTimeoutEnabled ", heeds), s)
		c.Close()
	}
}

func TestAContextThatIsOverSendsNothing(t *testing.T) {
	s, c := fresh(t, redistest.Addr(t), Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "5/1s"), Cost: 1}
	if err := s.Apply(ctx, []core.Op{op}, make([]core.Decision, 1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if keys := keysOf(t, s, c); len(keys) != 0 {
		t.Errorf("%q were written", keys)
	}
}

func TestARefusedPortIsTriedAgainUntilTheTimeout(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	c := redis.NewClient(&redis.Options{Addr: ln.Addr().String(), ContextTimeoutEnabled: true})
	defer c.Close()
	s := MustNew(c, Options{Timeout: 30 * time.Millisecond})
	const most = 50 * time.Millisecond
	took := typical(most, func() {
		if _, err := takeOne(context.Background(), s, "k"); err == nil {
			t.Error("a decision")
		}
	})
	if took > most {
		t.Errorf("an error after %v", took)
	}
}

// fault is an error reply of a Redis server.
type fault string

func (f fault) Error() string { return string(f) }
func (fault) RedisError()     {}

func TestOnlyErrorsThatProveThatNothingRanAreTriedAgain(t *testing.T) {
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
		&net.OpError{Op: "dial", Err: errors.New("connection refused")}:   true,
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
