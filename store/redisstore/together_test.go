package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
)

func TestOfAThousandCallersExactlyTheQuotaIsAdmitted(t *testing.T) {
	s, _ := fresh(t, redistest.Addr(t), Options{})
	for _, text := range everyAlgorithm {
		l := limit(t, strings.Replace(text, "10", "37", 1))
		var admitted atomic.Int64
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				out := make([]core.Decision, 1)
				op := core.Op{Rule: "r", Key: text, Limit: l, Cost: 1, Lease: fmt.Sprint(i)}
				if err := s.Apply(context.Background(), []core.Op{op}, out); err != nil {
					t.Error(err)
				}
				if out[0].Allowed {
					admitted.Add(1)
				}
			})
		}
		all.Wait()
		if admitted.Load() != 37 {
			t.Errorf("%s: %d admitted", l, admitted.Load())
		}
	}
}

// Two calls are under way when the server freezes. Callers that come then, too few
// to fill another, have left when the calls end, and their steps are never sent.
func TestNothingIsSentForThoseWhoLeftAFrozenServer(t *testing.T) {
	server := redistest.Start(t)
	c := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, ReadTimeout: patient})
	defer c.Close()
	s := MustNew(c, Options{Timeout: patient})
	hour := limit(t, "1000/1h fixed-window")
	take := func(ctx context.Context, key string) error {
		return s.Apply(ctx, []core.Op{{Rule: "r", Key: key, Limit: hour, Cost: 1}}, make([]core.Decision, 1))
	}
	ctx := context.Background()
	if err := take(ctx, "warm"); err != nil {
		t.Fatal(err)
	}
	server.Freeze()
	defer server.Thaw()
	var underWay, late sync.WaitGroup
	for range maxBatches {
		underWay.Go(func() {
			if err := take(ctx, "under way"); err != nil {
				t.Error(err)
			}
		})
	}
	awaitFlights(t, s)
	for i := range DefaultBatch - 1 {
		late.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
			defer cancel()
			if err := take(ctx, fmt.Sprint("late ", i)); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	late.Wait()
	server.Thaw()
	underWay.Wait()
	if keys := c.Keys(ctx, "hg:{late*").Val(); len(keys) != 0 {
		t.Errorf("%d callers that had left were charged", len(keys))
	}
	op := core.Op{Verb: core.Peek, Rule: "r", Key: "under way", Limit: hour}
	if d := apply(t, s, op)[0]; d.Remaining != 1000-maxBatches {
		t.Errorf("%d remain of 1000 after %d calls", d.Remaining, maxBatches)
	}
}

// awaitFlights waits until as many calls are under way as may be.
func awaitFlights(t *testing.T, s *Store) {
	t.Helper()
	deadline, tick := time.After(patient), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		s.queue.mu.Lock()
		n := s.queue.whole.batches
		s.queue.mu.Unlock()
		if n == maxBatches {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%d calls under way", n)
		case <-tick.C:
		}
	}
}

// Replies are lost while many wait: each of them was counted at most once.
func TestNoStepIsCountedTwiceWhenRepliesAreLost(t *testing.T) {
	t.Parallel()
	addr := redistest.Addr(t)
	r := newRelay(t, addr)
	s, _ := fresh(t, r.addr, Options{})
	direct := connect(t, addr)
	l := limit(t, "10/1h fixed-window")
	apply(t, s, core.Op{Rule: "r", Key: "warm", Limit: l, Cost: 1})
	s.timeout = time.Second
	r.mute.Store(true)
	var all sync.WaitGroup
	const callers = 300
	for i := range callers {
		all.Go(func() {
			op := core.Op{Rule: "r", Key: fmt.Sprint(i), Limit: l, Cost: 1}
			if err := s.Apply(context.Background(), []core.Op{op}, make([]core.Decision, 1)); err == nil {
				t.Error("a decision without a reply")
			}
		})
	}
	all.Wait()
	r.mute.Store(false)
	look := MustNew(direct, Options{Prefix: s.prefix, Timeout: patient})
	counted := 0
	for i := range callers {
		hasLeft := apply(t, look, core.Op{Verb: core.Peek, Rule: "r", Key: fmt.Sprint(i), Limit: l})[0].Remaining
		if hasLeft < 9 {
			t.Errorf("caller %d was counted %d times", i, 10-hasLeft)
		}
		counted += int(10 - hasLeft)
	}
	if counted == 0 {
		t.Error("nothing was sent: no reply was lost")
	}
}

func TestScriptsThatVanishUnderLoadCostNoDecision(t *testing.T) {
	s, c := fresh(t, redistest.Addr(t), Options{})
	l := limit(t, "1000/1h fixed-window")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				c.ScriptFlush(context.Background())
			}
		}
	}()
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			out := make([]core.Decision, 1)
			for range 20 {
				if err := s.Apply(context.Background(), []core.Op{{Rule: "r", Key: "k", Limit: l, Cost: 1}}, out); err != nil {
					t.Error(err)
				}
				if out[0].Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	<-stopped
	if admitted.Load() != 1000 {
		t.Errorf("%d admitted", admitted.Load())
	}
}

// Callers come and go in the middle of batches, under clients that heed
// deadlines and such that do not. Those who stay get the answers about their own
// keys, and the others use their memory again at once.
func TestCallersWhoLeaveHarmNobody(t *testing.T) {
	addr := redistest.Addr(t)
	for _, heeds := range []bool{true, false} {
		c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: heeds})
		s := MustNew(c, Options{Prefix: redistest.Prefix(t), Timeout: patient})
		var all sync.WaitGroup
		var hasLeft atomic.Int64
		for i := range 200 {
			all.Go(func() {
				quota := int64(10_000 + i)
				ops, out := make([]core.Op, 1), make([]core.Decision, 1)
				key := fmt.Appendf(nil, "caller %03d", i)
				taken := int64(0)
				for n := range 30 {
					ctx, cancel := context.WithTimeout(context.Background(), patient)
					if i%3 == 0 {
						ctx, cancel = context.WithTimeout(context.Background(), time.Duration(n)*50*time.Microsecond)
					}
					key[0] = 'c'
					ops[0] = core.Op{Rule: "r", Key: unsafe.String(&key[0], len(key)), Limit: core.Limit{Algorithm: core.FixedWindow, Quota: quota, Period: time.Hour}, Cost: 1}
					err := s.Apply(ctx, ops, out)
					cancel()
					key[0] = 'x' // as a framework does whose strings end with the request
					taken++
					switch {
					case err != nil && i%3 != 0:
						t.Error(err)
					case err != nil:
						hasLeft.Add(1)
						ops[0], out[0] = core.Op{}, core.Decision{}
					case i%3 != 0 && out[0].Remaining != quota-taken, out[0].Remaining < quota-taken, out[0].Remaining >= quota:
						t.Errorf("caller %d: %+v after %d", i, out[0], taken)
					}
				}
			})
		}
		all.Wait()
		if hasLeft.Load() == 0 {
			t.Error("nobody left")
		}
		c.Close()
	}
}
