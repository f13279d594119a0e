package limiter_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
)

// watched is a store that counts the steps of Takes and Peeks, and lets a test wait
// for them.
type watched struct {
	core.Store
	mu    sync.Mutex
	more  *sync.Cond
	asked int
}

func watch(s core.Store) *watched {
	w := &watched{Store: s}
	w.more = sync.NewCond(&w.mu)
	return w
}

func (w *watched) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	defer func() {
		if ops[0].Verb == core.Take || ops[0].Verb == core.Peek {
			w.mu.Lock()
			w.asked++
			w.more.Broadcast()
			w.mu.Unlock()
		}
	}()
	return w.Store.Apply(ctx, ops, out)
}

// await returns once the store has been asked n times, and how often it was.
func (w *watched) await(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.asked < n {
		w.more.Wait()
	}
	return w.asked
}

// patientStore returns a store in Redis that waits for the server as long as a store may:
// a call that fails would let a request in, and the others would wait for nothing.
func patientStore(t *testing.T, addr, prefix string) core.Store {
	t.Helper()
	const patience = time.Minute
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience})
	t.Cleanup(func() { _ = client.Close() })
	return redisstore.MustNew(client, redisstore.Options{Prefix: prefix, Timeout: patience})
}

// process returns a limiter with a client of its own, as another process has it, and
// its store.
func process(t *testing.T, addr, prefix string) (*limiter.Limiter, *watched) {
	t.Helper()
	s := watch(patientStore(t, addr, prefix))
	l := newLimiter(t, s, leased(t, "jobs", "1 concurrent ttl=1h", core.MaxBooking))
	t.Cleanup(func() { _ = l.Close() })
	return l, s
}

// A lease of another process is asked for 20 times a second, for all that wait together.
func TestLineAcrossProcesses(t *testing.T) {
	addr, prefix := redistest.Addr(t), redistest.Prefix(t)
	one, _ := process(t, addr, prefix)
	two, asked := process(t, addr, prefix)
	const rounds, waiters = 5, 20
	var took []time.Duration
	for range rounds {
		// The lease is held in one process, and twenty wait for it in the other.
		held, err := one.Take(t.Context(), "k", 1)
		if err != nil || !held.Allowed() {
			t.Fatal(held.Allowed(), err)
		}

		begun, before := time.Now(), asked.await(0)
		turns := make(chan time.Time, waiters)
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				res, err := two.TakeWithin(t.Context(), "k", 1, core.MaxBooking)
				if err != nil || !res.Allowed() {
					t.Error(res.Allowed(), err)
				}
				turns <- time.Now()
				if err := res.Release(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}

		asked.await(before + waiters + 3) // each has asked, and the first again
		released := time.Now()
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		took = append(took, (<-turns).Sub(released))
		wg.Wait()

		// Each asks when it arrives and when it is its turn, and once more if a release comes
		// before it stands in the line.
		most := 3*waiters + int(time.Since(begun)/(50*time.Millisecond)) + 1
		if n := asked.await(0) - before; n > most {
			t.Errorf("asked %d times, want at most %d", n, most)
		}
	}

	slices.Sort(took)
	test.AtMost(t, "from a release in another process to the turn, half", took[len(took)/2], 60*time.Millisecond)
	test.AtMost(t, "from a release in another process to the turn, the slowest", took[len(took)-1], 60*time.Millisecond)
}

// A release in the same process is not waited for.
func TestLineInOneProcess(t *testing.T) {
	for name, s := range map[string]core.Store{
		"memory": memstore.MustNew(memstore.Options{}),
		"redis":  patientStore(t, redistest.Addr(t), redistest.Prefix(t)),
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(s)
			l := newLimiter(t, w, leased(t, "jobs", "1 concurrent ttl=1h", core.MaxBooking))
			defer l.Close()
			var took []time.Duration
			for range 20 {
				held, err := l.Take(t.Context(), "k", 1)
				if err != nil || !held.Allowed() {
					t.Fatal(held.Allowed(), err)
				}

				before, turn := w.await(0), make(chan time.Time)
				go func() {
					res, err := l.TakeWithin(context.Background(), "k", 1, core.MaxBooking)
					at := time.Now()
					if err == nil {
						err = res.Release(context.Background())
					}
					if err != nil {
						t.Error(err)
					}
					turn <- at
				}()

				w.await(before + 2) // it waits, and has asked again
				released := time.Now()
				if err := held.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				took = append(took, (<-turn).Sub(released))
			}

			slices.Sort(took)
			test.AtMost(t, "from a release to the turn, half", took[len(took)/2], 5*time.Millisecond)
			test.AtMost(t, "from a release to the turn, the slowest", took[len(took)-1], 5*time.Millisecond)
		})
	}
}

// Over Redis two processes serve the patient in the order of arrival, no more than the limit
// has, and give back what the others have booked.
func TestSlotsAcrossProcesses(t *testing.T) {
	addr, prefix := redistest.Addr(t), redistest.Prefix(t)
	slots := rule(t, "slots", "100/1s burst=1")
	var wg sync.WaitGroup
	begun, served := time.Now(), int64(0)
	var mu sync.Mutex
	for range 2 {
		l := newLimiter(t, patientStore(t, addr, prefix), slots)
		defer l.Close()
		// 120 clients in two processes, of which 80 leave after 20 ms and 40 stay.
		for range 20 {
			for _, leaves := range []bool{true, false, true} {
				ctx := t.Context()
				if leaves {
					c, leave := context.WithCancel(t.Context())
					time.AfterFunc(20*time.Millisecond, leave)
					ctx = c
				}
				wg.Go(func() {
					res, err := l.TakeWithin(ctx, "k", 1, core.MaxBooking)
					if err != nil && ctx.Err() == nil || !leaves && !res.Allowed() {
						t.Error(res.Allowed(), err)
					}
					if res.Allowed() {
						mu.Lock()
						defer mu.Unlock()
						served++
					}
				})
			}
		}
	}

	wg.Wait()
	// One unit each 10 ms, and one of the burst. Those who stay are all served.
	if most := 1 + int64(time.Since(begun)/(10*time.Millisecond)); served < 40 || served > most {
		t.Errorf("served %d, want 40 to %d", served, most)
	}
}
