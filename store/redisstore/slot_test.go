package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/redis/go-redis/v9"
)

func TestOnlyStepsWhoseKeysShareAServerShareACall(t *testing.T) {
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
		{one, Options{}, shareAll}, {one, Options{Batch: 1}, shareNone},
		{many, Options{}, shareSlot}, {many, Options{OneSlot: true}, shareAll}, {many, Options{OneSlot: true, Batch: 1}, shareNone},
		{ring, Options{}, shareNone}, {ring, Options{OneSlot: true}, shareAll},
		{wrapped{one}, Options{}, shareNone}, {wrapped{many}, Options{OneSlot: true}, shareAll},
	} {
		if got := MustNew(row.client, row.o).shared; got != row.want {
			t.Errorf("%T with %+v shares %d, not %d", row.client, row.o, got, row.want)
		}
	}
}

func TestSlotsAreThoseOfRedis(t *testing.T) {
	t.Parallel()
	if got := crc16([]byte("123456789")); got != 0x31c3 {
		t.Errorf("CRC-16/XMODEM is %#x", got)
	}
	c := cluster(t)
	for _, o := range []Options{{}, {Secret: []byte("sixteen bytes of it")}} {
		s := MustNew(c, o)
		for _, subject := range []string{"", "a", "10.0.0.1", "{b}", "}", "ü\x00", strings.Repeat("long", 100), strings.Repeat("\xff", maxReadable)} {
			key := string(s.key(nil, subject, "r", "g"))
			want, err := c.ClusterKeySlot(context.Background(), key).Result()
			if err != nil {
				t.Fatal(err)
			}
			if got := s.slotOf([]core.Op{{Key: subject}}); int64(got) != want {
				t.Errorf("%q is in slot %d, not %d", key, want, got)
			}
		}
	}
}

// One busy subject and many others, all at once: every count is exact, no script
// gets keys of two slots, and the busy one's steps share calls.
func TestTheStepsOfABusySubjectShareCallsOnACluster(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	s := MustNew(c, Options{Timeout: patient})
	l := limit(t, "37/1h fixed-window")
	var admitted, others atomic.Int64
	var all sync.WaitGroup
	for i := range 400 {
		all.Go(func() {
			ops := []core.Op{{Rule: "r", Key: "busy", Limit: l, Cost: 1}, {Rule: "q", Key: "busy", Limit: limit(t, "1000/1h"), Cost: 1}}
			out := make([]core.Decision, 2)
			if err := s.Apply(context.Background(), ops, out); err != nil {
				t.Error(err)
			}
			if out[0].Allowed {
				admitted.Add(1)
			}
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
func TestSlotsAreQueuedApartAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{wait: slow}
		s := faked(t, f, Options{})
		s.shared = shareSlot
		start := time.Now()
		each(10, func(i int, _ string) {
			ops := []core.Op{{Rule: fmt.Sprint(i), Key: string("ab"[i%2]), Limit: core.Limit{Quota: 1000, Period: 1e9}, Cost: 1}}
			out := make([]core.Decision, 1)
			if err := s.Apply(context.Background(), ops, out); err != nil || !out[0].Allowed {
				t.Errorf("caller %d: %+v, %v", i, out[0], err)
			}
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
