package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/tally"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/prefetch"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

var long = flag.Duration("for", 3*time.Second, "how long the soak runs")

const (
	// warmUp is the number of rounds before the first measurement of usage.
	warmUp = 200

	// enough is the minimum number of rounds, also on a slow machine.
	enough = 400
)

// maxKeys is the maximum number of keys in the memory store. A round has fewer.
const maxKeys = 5000

// entrant is one of the tested stores.
type entrant struct {
	name  string
	store core.Store
}

func entrants(t *testing.T, client redis.UniversalClient) []entrant {
	t.Helper()
	memory := memstore.MustNew(memstore.Options{MaxKeys: maxKeys})

	// The timeouts are long: the answers of a fallback would not be those of the shared count.
	remote, err := redisstore.New(client, redisstore.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ahead, err := prefetch.New(remote, prefetch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	guarded, err := failover.New(remote, failover.Options{
		Fallback: memstore.MustNew(memstore.Options{MaxKeys: maxKeys}), Slow: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guarded.Close() })

	return []entrant{{"memory", memory}, {"Redis", remote},
		{"Redis, units taken ahead", ahead}, {"Redis, with a fallback", guarded}}
}

// limits do not give a unit back while a round lasts.
var limits = []string{
	"%d/400d", "%d/400d token-bucket", "%d/400d fixed-window",
	"%d/300d sliding-log", "%d/300d sliding-window", "%d concurrent ttl=1h",
}

func TestSoak(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true,
		DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute})
	t.Cleanup(func() { client.Close() })

	stores := entrants(t, client)
	r := rand.New(rand.NewPCG(1, 2))
	end := time.Now().Add(*long)
	var rounds, decisions int64
	var first usage

	// Both are minimums: in the time alone, a slow machine would have too few rounds.
	for (time.Now().Before(end) || rounds < enough) && !t.Failed() {
		s := stores[rounds%int64(len(stores))]
		quota := 1 + r.Int64N(60)
		text := fmt.Sprintf(limits[r.IntN(len(limits))], quota)
		decisions += round(t, s, text, quota, fmt.Sprint("key", rounds))
		rounds++

		// The first measurement comes when pools and tables have their size.
		if rounds == warmUp {
			first = measure()
		}

		// Keys of long periods would fill the memory of the server.
		if rounds%500 == 0 {
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}

	immortal(t, client)
	wantNoMore(t, rounds, first)
	tally.Add(t, "decisions in a soak, with exact counts", decisions)
	t.Logf("%d rounds, %d decisions in %v", rounds, decisions, *long)
}

// round runs concurrent callers against one key, and returns the number of decisions.
func round(t *testing.T, s entrant, text string, quota int64, key string) int64 {
	t.Helper()

	limit := core.MustParseLimit(text)
	const callers, calls = 8, 16

	// 128 calls at most compete for up to 60 units, so some are refused in every round.
	var admitted atomic.Int64
	var group sync.WaitGroup
	for id := range callers {
		group.Go(func() {
			out := make([]core.Decision, 1)
			for n := range calls {
				op := core.Op{Rule: "soak", Key: key, Limit: limit, Cost: 1, Lease: fmt.Sprint(id, "/", n)}
				if err := s.store.Apply(context.Background(), []core.Op{op}, out); err != nil {
					t.Errorf("%s, %s: %v", s.name, text, err)
					return
				}
				if out[0].Allowed {
					admitted.Add(1)
				}
			}
		})
	}

	// The count is exact, whatever the order was.
	group.Wait()
	if n := admitted.Load(); n != quota {
		t.Errorf("%s, %s: %d admitted", s.name, text, n)
	}
	return callers * calls
}

// usage holds the quantities that must not grow.
type usage struct {
	heap       uint64
	goroutines int
}

func measure() usage {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{m.HeapAlloc, runtime.NumGoroutine()}
}

// wantNoMore fails if usage has grown. It waits a moment for goroutines to end.
func wantNoMore(t *testing.T, rounds int64, first usage) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var last usage
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		last = measure()
		if last.goroutines <= first.goroutines+8 && last.heap <= 2*first.heap+(16<<20) {
			return
		}
	}
	t.Errorf("after %d rounds %+v, and after %d %+v", rounds, last, warmUp, first)
}

// immortal fails if a key has no time to live.
func immortal(t *testing.T, client *redis.Client) {
	t.Helper()
	for it := client.Scan(t.Context(), 0, "*", 1000).Iterator(); it.Next(t.Context()); {
		if client.PTTL(t.Context(), it.Val()).Val() == -1 { // -2 means that the key is gone
			t.Errorf("%s has no time to live", it.Val())
		}
	}
}
