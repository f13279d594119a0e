package redisstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/failover"
)

// told is what was told of a step after it had failed.
type told struct {
	key string
	d   core.Decision
}

// takeLate has each key taken from, and returns what is told of the steps that failed, until n are
// told.
func takeLate(t *testing.T, s *Store, keys []string, n int) (list []told, failed int) {
	t.Helper()
	tells := make(chan told, 2*len(keys)) // with room for steps that are told twice

	var mu sync.Mutex
	var all sync.WaitGroup
	if len(keys) > 1 {
		holdCalls(s)
		all.Go(func() { shareCall(s, len(keys)) })
	}
	for _, key := range keys {
		all.Go(func() {
			_, err := takeOne(context.Background(), s, key)
			if err == nil {
				return
			}
			mu.Lock()
			failed++
			mu.Unlock()

			var pending *pendingError
			if errors.As(err, &pending) {
				pending.WhenDecided(func(ops []core.Op, out []core.Decision) { tells <- told{ops[0].Key, out[0]} })
			}
		})
	}
	all.Wait()

	// Those that come are few, so the time is only that of a failure.
	end := time.After(10 * time.Second)
	for len(list) < n {
		select {
		case one := <-tells:
			list = append(list, one)
		case <-end:
			t.Fatalf("%d of %d were told, and %d calls failed", len(list), n, failed)
		}
	}
	return list, failed
}

// holdCalls has further callers wait, as if as many calls were in flight as may be.
func holdCalls(s *Store) {
	q := &s.dispatcher.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.whole.batches = maxBatches
}

// shareCall has n callers, which come while calls are held, share one call.
func shareCall(s *Store, n int) {
	q := &s.dispatcher.queue
	for waiting := 0; waiting < n; runtime.Gosched() {
		q.mu.Lock()
		waiting = q.whole.ops
		q.mu.Unlock()
	}
	for range maxBatches {
		s.dispatcher.handOver(&q.whole)
	}
}

// overLate returns a store with a timeout of 200ms over a Redis behind a proxy. It has connected,
// and the server knows the script.
func overLate(t *testing.T, options redis.Options) (*Store, *faultproxy.Proxy) {
	t.Helper()
	proxy := faultproxy.New(t, redistest.Start(t).Addr)
	options.Addr, options.ContextTimeoutEnabled = proxy.Addr, true
	c := redis.NewClient(&options)
	t.Cleanup(func() { c.Close() })

	s := MustNew(c, Options{Timeout: 200 * ms, Prefix: redistest.Prefix(t)})
	for range 4 {
		if _, err := takeOne(t.Context(), s, "warm"); err != nil {
			t.Fatal(err)
		}
	}
	return s, proxy
}

// A call that is late has ended for its callers, who hear what Redis has decided once it says so:
// of a step that went alone, and of those that shared a call.
func TestLateReplyIsTold(t *testing.T) {
	for name, options := range map[string]redis.Options{"RESP3": {}, "RESP2": {Protocol: 2}} {
		for _, n := range []int{1, 40} {
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				s, proxy := overLate(t, options)

				// Callers leave at 200ms, and a call that they share ends at 280.
				proxy.Set(faultproxy.Fault{Late: 500 * ms})

				keys := make([]string, n)
				for i := range keys {
					keys[i] = string(rune('A' + i))
				}
				list, failed := takeLate(t, s, keys, n)
				if failed != n {
					t.Errorf("%d steps failed, want %d", failed, n)
				}

				// Each is told once, with the decision on the first unit of its key.
				seen := map[string]bool{}
				for _, one := range list {
					if seen[one.key] || !one.d.Allowed || one.d.Taken != 1 || one.d.Remaining != 999 {
						t.Errorf("%s: %+v", one.key, one.d)
					}
					seen[one.key] = true
				}
			})
		}
	}
}

// A reply is integers from its beginning, or none at all.
func TestReadIntegers(t *testing.T) {
	for text, want := range map[string][]int64{
		"*3\r\n:1\r\n:-2\r\n:9007199254740993\r\n": {1, -2, 9007199254740993},
		"*0\r\n":             nil,
		"*1\r\n:7\r\nmore":   {7},
		"-ERR no\r\n":        nil,
		":1\r\n:2\r\n":       nil,
		"*1\r\n$1\r\n7\r\n":  nil,
		"%1\r\n:1\r\n:2\r\n": nil,
		"*-1\r\n":            nil,
		"*x\r\n":             nil,
		"*2\r\n:1\r\n":       nil,
		"*1\r\n:" + strings.Repeat("0", 2*bufio.MaxScanTokenSize): nil,
	} {
		near, far := net.Pipe()
		go func() {
			_, _ = far.Write([]byte(text))
			far.Close()
		}()

		ints, err := readIntegers(near)
		if near.Close(); (err != nil && want != nil) || !slices.Equal(ints, want) && err == nil {
			t.Errorf("%.30q: %d, %v", text, ints, err)
		}
	}
}

// A step that Redis admits after its caller got an error costs nothing in the end.
func TestLateChargeGoesBackInRedis(t *testing.T) {
	s, proxy := overLate(t, redis.Options{})
	over := failover.MustNew(s, failover.Options{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { over.Close() })
	proxy.Set(faultproxy.Fault{Nth: 1, Late: 500 * ms})

	op := core.Op{Rule: "r", Key: "k", Limit: core.Limit{Quota: 30, Period: time.Hour}, Cost: 1}
	if err := over.Apply(t.Context(), []core.Op{op}, make([]core.Decision, 1)); err == nil {
		t.Fatal("no error")
	}

	op.Verb, op.Cost = core.Peek, 0
	remains := func() int64 {
		var out [1]core.Decision
		if err := s.Apply(t.Context(), []core.Op{op}, out[:]); err != nil {
			t.Fatal(err)
		}
		return out[0].Remaining
	}

	// The charge is in Redis long before its reply is here, and after that the refund is.
	if n := remains(); n != 29 {
		t.Fatalf("%d remain after the charge", n)
	}
	for end := time.Now().Add(patient); remains() != 30; time.Sleep(ms) {
		if time.Now().After(end) {
			t.Fatalf("%d remain, want 30", remains())
		}
	}
}
