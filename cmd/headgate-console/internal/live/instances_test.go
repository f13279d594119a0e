package live

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
)

// trips counts the round trips of a client.
type trips struct{ n atomic.Int64 }

func (h *trips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmd)
	}
}

func (h *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmds)
	}
}

// A fleet is read in few round trips, and once for all viewers.
func TestInstancesAreReadAtOnce(t *testing.T) {
	// Few round trips are the point: one by one, 200 instances would take 200.
	sizes := map[int]int64{200: 2}
	if os.Getenv("HEADGATE_LONG") == "1" {
		sizes[10_000] = 21 // no reply of Redis is large
	}
	for size, want := range sizes {
		client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr, ContextTimeoutEnabled: true,
			DisableIdentity: true})
		t.Cleanup(func() { client.Close() })

		source, err := redissource.New(client, redissource.Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}

		begun := time.Now()
		for i := range size {
			instance := policy.Instance{
				ID:      fmt.Sprintf("node-%05d", i),
				Process: fmt.Sprint("p", i),
				App:     "a",
				Version: "7-abc",
				Store:   "store",
			}
			if err := source.Report(t.Context(), instance); err != nil {
				t.Fatal(err)
			}
		}

		// Reports expire, so a machine that is too slow would have fewer instances than the test
		// counts.
		if time.Since(begun) > 15*time.Second {
			test.Skip(t, "the machine is too busy to have so many instances report within twenty seconds")
		}

		if _, err := source.Instances(t.Context()); err != nil { // the script is loaded
			t.Fatal(err)
		}

		v := New(newFake(), source, newFake().top, newFake().keys)
		defer v.Close()

		h := &trips{}
		client.AddHook(h)
		begun = time.Now()
		list, err := v.Instances(t.Context())
		took := time.Since(begun)

		if err != nil || len(list) != size || h.n.Load() != want {
			t.Errorf("%d of %d instances in %d round trips, want %d; %v", len(list), size, h.n.Load(), want, err)
		}
		test.AtMost(t, fmt.Sprintf("%d instances are read", size), took, 100*time.Millisecond)

		// The next viewer gets the list that was just read.
		begun = time.Now()
		if list, err := v.Instances(t.Context()); err != nil || len(list) != size {
			t.Error(len(list), err)
		}
		test.AtMost(t, fmt.Sprintf("%d instances are read by the next viewer", size), time.Since(begun),
			10*time.Millisecond)
	}
}
