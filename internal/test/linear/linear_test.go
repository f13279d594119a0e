package linear

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/tally"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

const (
	quota   = 60
	debt    = 20
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

// request takes, debits or refunds units of a key, or resets the key.
type request struct {
	key  string
	verb core.Verb
	cost int64
}

// answer is the number of units that remain and that were charged. After an error it is
// not known whether the request took effect.
type answer struct {
	remaining, taken int64
	unknown          bool
}

// counter is the tested store.
type counter func(request) (answer, error)

// model is a sequential counter. Its state is the number of units in use.
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
	Init: func() []any { return []any{int64(0)} },
	Step: func(state, input, output any) []any {
		before, got := state.(int64), output.(answer)
		after, taken := count(before, input.(request))
		switch {
		case got.unknown:
			return []any{before, after}
		case got == answer{remaining: max(0, quota-after), taken: taken}:
			return []any{after}
		}
		return nil
	},
}).ToModel()

// count carries out a request. It returns how many units are in use then, and how many
// were charged.
func count(used int64, q request) (after, taken int64) {
	// A take is all or nothing, and a debit charges what fits below the debt.
	switch q.verb {
	case core.Take:
		if used+q.cost <= quota {
			taken = q.cost
		}
	case core.Debit:
		taken = min(q.cost, quota+debt-used)
	case core.Refund:
		return max(0, used-q.cost), 0
	case core.Reset:
		return 0, 0
	}
	return used + taken, taken
}

// draw returns a random request.
func draw(r *rand.Rand) request {
	q := request{key: []string{"a", "b", "c"}[r.IntN(3)], verb: core.Take, cost: 1}
	switch n := r.IntN(40); {
	case n == 0:
		q.verb = core.Reset
	case n < 8:
		q.verb, q.cost = core.Debit, 1+r.Int64N(9)
	case n < 16:
		q.verb, q.cost = core.Refund, 1+r.Int64N(6)
	}
	return q
}

// record runs concurrent callers against the counter, and calls mischief before each
// call.
func record(tested counter, mischief func(*rand.Rand)) []porcupine.Operation {
	var mu sync.Mutex
	var history []porcupine.Operation
	base := time.Now()
	var group sync.WaitGroup

	// Each caller draws from a seed of its own, so that runs differ by their order alone.
	for id := range callers {
		group.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(id)))
			for range calls {
				mischief(r)
				q := draw(r)

				// The interval begins before the call and ends after it: the effect lies anywhere
				// between.
				op := porcupine.Operation{ClientId: id, Input: q, Call: time.Since(base).Nanoseconds()}
				got, err := tested(q)
				op.Return, op.Output = time.Since(base).Nanoseconds(), got
				if err != nil {
					// It may still take effect, at any time.
					op.Return, op.Output = time.Hour.Nanoseconds(), answer{unknown: true}
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
	limit := core.Limit{Algorithm: core.FixedWindow, Quota: quota, Period: 24 * time.Hour, Debt: debt}
	return func(q request) (answer, error) {
		op := core.Op{Verb: q.verb, Rule: "rule", Key: q.key, Limit: limit, Cost: q.cost}
		var out [1]core.Decision
		err := s.Apply(context.Background(), []core.Op{op}, out[:])
		return answer{remaining: out[0].Remaining, taken: out[0].Taken}, err
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

	// A run without a failure would prove nothing about lost replies.
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
local used, verb, cost, quota, debt = tonumber(redis.call('GET', KEYS[1])) or 0, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local taken = 0
if verb == 'take' and used + cost <= quota then taken = cost end
if verb == 'debit' then taken = math.min(cost, quota + debt - used) end
used = used + taken
if verb == 'refund' then used = math.max(0, used - cost) end
if verb == 'reset' then used = 0 end
redis.call('SET', KEYS[1], used, 'EX', 86400)
return {math.max(0, quota - used), taken}`)

	through := func(timeout time.Duration) counter {
		stock := connect(t, p.Addr, timeout)
		return func(q request) (answer, error) {
			n, err := script.Run(context.Background(), stock,
				[]string{q.key}, q.verb.String(), q.cost, quota, debt).Int64Slice()
			if err != nil {
				return answer{}, err
			}
			return answer{remaining: n[0], taken: n[1]}, nil
		}
	}

	// Both clients run the same script. One waits for late replies, and one repeats the call.
	patient, stock := through(time.Minute), through(lost)
	if result := porcupine.CheckOperationsTimeout(model, record(patient, peace), patience); result != porcupine.Ok {
		t.Fatalf("without a fault: %v", result)
	}

	// The second run begins with an empty counter.
	connect(t, p.Addr, time.Minute).FlushAll(t.Context())
	if result := porcupine.CheckOperationsTimeout(model, record(stock, losses(p)),
		patience); result != porcupine.Illegal {
		t.Errorf("with lost replies: %v, want %v", result, porcupine.Illegal)
	}
}
