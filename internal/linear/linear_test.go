package linear

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/faultproxy"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/tally"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

const (
	quota   = 60
	callers = 8
	calls   = 40
)

const (
	// patience bounds a call when no reply is lost, and the search for an order.
	patience = 5 * time.Minute

	// lost is the time after which a caller gives up waiting for a reply. A reply that
	// is late for lack of a processor counts as lost, which the model allows.
	lost = 500 * time.Millisecond
)

// request asks for a unit of a key, or resets the key.
type request struct {
	key   string
	reset bool
}

// answer is the number of units that remain, or -1 for a refusal. After an error it is
// not known whether the request took effect.
type answer struct {
	remaining int64
	unknown   bool
}

// counter is the tested store.
type counter func(request) (remaining int64, err error)

// model is a sequential counter. Its state is the number of remaining units.
var model = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(request).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{int64(quota)} },
	Step: func(state, input, output any) []any {
		before, got := state.(int64), output.(answer)
		after, allowed := before, int64(-1)
		if input.(request).reset {
			after, allowed = quota, quota
		} else if before > 0 {
			after, allowed = before-1, before-1
		}
		switch {
		case got.unknown:
			return []any{before, after}
		case got.remaining == allowed:
			return []any{after}
		}
		return nil
	},
}).ToModel()

// record runs concurrent callers against the counter, and calls mischief before each
// call.
func record(count counter, mischief func(*rand.Rand)) []porcupine.Operation {
	var mu sync.Mutex
	var history []porcupine.Operation
	base := time.Now()
	var group sync.WaitGroup
	for id := range callers {
		group.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(id)))
			for range calls {
				mischief(r)
				q := request{key: []string{"a", "b", "c"}[r.IntN(3)], reset: r.IntN(40) == 0}
				op := porcupine.Operation{ClientId: id, Input: q, Call: time.Since(base).Nanoseconds()}
				remaining, err := count(q)
				op.Return, op.Output = time.Since(base).Nanoseconds(), answer{remaining, err != nil}
				if err != nil {
					// It may still take effect, at any time.
					op.Return = time.Hour.Nanoseconds()
				}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return history
}

// through counts in a store.
func through(s core.Store) counter {
	limit := core.Limit{Algorithm: core.FixedWindow, Quota: quota, Period: 24 * time.Hour}
	return func(q request) (int64, error) {
		op := core.Op{Rule: "rule", Key: q.key, Limit: limit, Cost: 1}
		if q.reset {
			op.Verb = core.Reset
		}
		var out [1]core.Decision
		if err := s.Apply(context.Background(), []core.Op{op}, out[:]); err != nil {
			return 0, err
		}
		if !out[0].Allowed {
			return -1, nil
		}
		return out[0].Remaining, nil
	}
}

// peace causes no fault.
func peace(*rand.Rand) {}

// losses loses the replies of some calls.
func losses(p *faultproxy.Proxy) func(*rand.Rand) {
	return func(r *rand.Rand) {
		switch r.IntN(30) {
		case 0:
			p.Set(faultproxy.Fault{Nth: 1, Drop: true})
		case 1:
			p.Set(faultproxy.Fault{Nth: 1, CutReply: faultproxy.After(r.IntN(8))})
		case 2:
			p.Set(faultproxy.Fault{Nth: 1, CutRequest: faultproxy.After(r.IntN(60))})
		}
	}
}

// connect returns a client that waits for a reply until the timeout.
func connect(t *testing.T, addr string, timeout time.Duration) *redis.Client {
	o := redis.Options{Addr: addr, ContextTimeoutEnabled: true,
		DialTimeout: patience, PoolTimeout: patience, WriteTimeout: patience, ReadTimeout: timeout}
	c := redis.NewClient(&o)
	t.Cleanup(func() { c.Close() })
	return c
}

func redisStore(t *testing.T, addr string, timeout time.Duration) core.Store {
	t.Helper()
	s, err := redisstore.New(connect(t, addr, timeout), redisstore.Options{Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func check(t *testing.T, name string, history []porcupine.Operation) {
	t.Helper()
	tally.Add(t, "concurrent calls that can be put into one order", int64(len(history)))
	unknown := 0
	for _, op := range history {
		if op.Output.(answer).unknown {
			unknown++
		}
	}
	if result := porcupine.CheckOperationsTimeout(model, history, patience); result != porcupine.Ok {
		t.Errorf("%s: %d calls, of which %d failed: %v", name, len(history), unknown, result)
	}
}

func TestLinear(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	check(t, "memory", record(through(memstore.MustNew(memstore.Options{})), peace))
	check(t, "Redis", record(through(redisStore(t, server.Addr, time.Minute)), peace))
}

func TestLinearWithLostReplies(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := faultproxy.New(t, server.Addr)
	history := record(through(redisStore(t, p.Addr, lost)), losses(p))
	failed := 0
	for _, op := range history {
		if op.Output.(answer).unknown {
			failed++
		}
	}
	if failed == 0 {
		t.Fatal("no call failed: nothing was lost")
	}
	check(t, "Redis", history)
}

// A client that repeats a call whose reply is late counts the call twice. The tests
// above prove nothing unless they notice that.
func TestLinearNoticesRepeatedCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := faultproxy.New(t, server.Addr)
	script := redis.NewScript(`
if ARGV[2] == '1' then redis.call('DEL', KEYS[1]) return tonumber(ARGV[1]) end
local left = tonumber(ARGV[1]) - (tonumber(redis.call('GET', KEYS[1])) or 0)
if left <= 0 then return -1 end
redis.call('INCR', KEYS[1])
redis.call('EXPIRE', KEYS[1], 86400)
return left - 1`)
	through := func(timeout time.Duration) counter {
		stock := connect(t, p.Addr, timeout)
		return func(q request) (int64, error) {
			reset := 0
			if q.reset {
				reset = 1
			}
			return script.Run(context.Background(), stock, []string{q.key}, quota, reset).Int64()
		}
	}
	patient, stock := through(time.Minute), through(lost)
	if result := porcupine.CheckOperationsTimeout(model, record(patient, peace), patience); result != porcupine.Ok {
		t.Fatalf("without a fault: %v", result)
	}
	connect(t, p.Addr, time.Minute).FlushAll(t.Context())
	if result := porcupine.CheckOperationsTimeout(model, record(stock, losses(p)), patience); result != porcupine.Illegal {
		t.Errorf("with lost replies: %v, want %v", result, porcupine.Illegal)
	}
}
