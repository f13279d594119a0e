package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/storetest"
)

// calls counts the scripts that a client calls. Beside them a store may add bans to a list.
type calls struct{ atomic.Int64 }

func (*calls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (n *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			n.Add(1)
		}
		return next(ctx, cmd)
	}
}

// pair is two stores with the same clock and the same history. One of them caches
// refusals.
type pair struct {
	t       *testing.T
	clock   *storetest.Clock
	with    *Store
	without *Store
	sent    *calls // by the one that remembers
	key     string
}

func newPair(t *testing.T, addr string) *pair {
	t.Helper()
	p := &pair{t: t, clock: storetest.NewClock(), sent: new(calls), key: "k"}
	p.with, _ = fresh(t, addr, Options{Clock: p.clock.Now, CacheRefusals: 100})
	p.with.client.AddHook(p.sent)
	p.without, _ = fresh(t, addr, Options{Clock: p.clock.Now})
	return p
}

// apply gives ops to both, wants the same decisions, and reports whether Redis was
// asked.
func (p *pair) apply(ops ...core.Op) (out []core.Decision, asked bool) {
	p.t.Helper()
	before := p.sent.Load()
	out = apply(p.t, p.with, slices.Clone(ops)...)
	if want := apply(p.t, p.without, ops...); !slices.Equal(out, want) {
		p.t.Errorf("at %d: %+v\nremembered %+v\nRedis says %+v", p.clock.Now()-storetest.Epoch, ops, out, want)
	}
	return out, p.sent.Load() > before
}

func (p *pair) take(l core.Limit, cost int64) (core.Decision, bool) {
	p.t.Helper()
	out, asked := p.apply(core.Op{Rule: "r", Key: p.key, Limit: l, Cost: cost})
	return out[0], asked
}

// drain takes all of the limit, unit by unit and d apart.
func (p *pair) drain(l core.Limit, d time.Duration) {
	p.t.Helper()
	for range l.Capacity() {
		p.take(l, 1)
		p.clock.Add(d)
	}
}

func TestRefusalCacheAnswersAsRedis(t *testing.T) {
	addr := redistest.Addr(t)
	for text, costs := range map[string][]int64{
		"10/1h":                           {1},
		"7/1h":                            {1}, // an hour is no multiple of 7
		"10/1h fixed-window":              {1, 5, 10, 2},
		"10/1h fixed-window aligned":      {2, 1},
		"10/day":                          {1, 5, 10, 2},
		"10/month tz=Europe/Berlin":       {2, 1},
		"10/1h sliding-log":               {1},
		"10/1h sliding-window":            {1},
		"10/1h token-bucket":              {1},
		"3/1m token-bucket burst=9":       {1},
		"1/1s burst=5":                    {1},
		"100/1m sliding-window":           {1},
		"10/1ms":                          {1},
		"10/1h sliding-window segments=4": {1},
	} {
		l := limit(t, text)

		// Each row's limit is used up unit by unit, and then refuses each of the costs.
		for i, first := range append(costs, 1) {
			p := newPair(t, addr)
			p.drain(l, 3*time.Microsecond)

			// The last round has a debt too, which delays the end of a refusal.
			if i == len(costs) && l.MaxDebt() > 0 {
				p.apply(core.Op{Verb: core.Debit, Rule: "r", Key: p.key, Limit: l, Cost: 3})
			}

			d, asked := p.take(l, first)
			if d.Allowed || !asked {
				t.Fatalf("%s: a first refusal of %d: %+v, asked %v", text, first, d, asked)
			}

			// A refusal is believed for a second at most.
			span := min(d.RetryAfter, time.Second).Microseconds()
			end := p.clock.Now() + span

			// Instants between the refusal and its end, the last of them a microsecond before it.
			for _, part := range []int64{0, 1, 2, 3, 5, 8, 13, 21, 50, 99, 100} {
				p.clock.Set(min(end-1, end-span*(100-part)/100))
				for _, cost := range costs {
					// A refusal of a smaller cost ends earlier, so what would be granted by now is
					// left out.
					peek := core.Op{Verb: core.Peek, Rule: "r", Key: p.key, Limit: l, Cost: cost}
					if out, _ := p.apply(peek); out[0].Allowed {
						continue
					}
					if _, asked := p.take(l, cost); asked {
						t.Errorf("%s: Redis was asked for %d units %d µs before it grants %d", text, cost,
							end-p.clock.Now(), first)
					}
				}
			}

			// The end itself belongs to Redis, and so does the end of the second.
			p.clock.Set(end)
			if _, asked := p.take(l, first); !asked {
				t.Errorf("%s: Redis was not asked when the refusal of %d had ended", text, first)
			}
		}
	}
}

func TestRefusalCacheKeepsAnAttackFromRedis(t *testing.T) {
	server := redistest.Start(t)
	s, c := fresh(t, server.Addr, Options{CacheRefusals: 100})

	op := core.Op{Rule: "r", Key: "k", Limit: limit(t, "5/1h"), Cost: 1}

	// Five are granted, and the sixth is the refusal that is remembered.
	for range 6 {
		apply(t, s, op)
	}

	before := commands(t, c)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			out := make([]core.Decision, 1)
			for range 100 {
				err := s.Apply(context.Background(), []core.Op{op}, out)
				if err != nil || out[0].Allowed || out[0].RetryAfter <= 0 || out[0].RetryAfter > 12*time.Minute {
					t.Errorf("%v, %+v", err, out[0])
				}
			}
		})
	}
	all.Wait()

	if after := commands(t, c); after != before {
		t.Errorf("script calls before and after the attack:\n%s\n%s", before, after)
	}
}

// commands returns what Redis has counted of script calls.
func commands(t *testing.T, c *redis.Client) string {
	t.Helper()
	info, err := c.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(info) {
		if strings.HasPrefix(line, "cmdstat_eval") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestRefusalCacheSeesChangesOfAKey(t *testing.T) {
	addr := redistest.Addr(t)
	l := limit(t, "10/1h")
	op := core.Op{Rule: "r", Key: "k", Limit: l}

	other := limit(t, "20/1h")

	// Whatever this process does to the key may change when it is granted again. Under another
	// limit the store reads the state in a new way, also for a peek.
	with := func(change func(op *core.Op)) core.Op { o := op; change(&o); return o }
	for what, step := range map[string][]core.Op{
		"a reset":  {with(func(o *core.Op) { o.Verb = core.Reset })},
		"a refund": {with(func(o *core.Op) { o.Verb, o.Cost = core.Refund, 3 })},
		"a debit":  {with(func(o *core.Op) { o.Verb, o.Cost = core.Debit, 2 })},
		"a debit among others": {{Rule: "q", Key: "k", Limit: l, Cost: 1},
			with(func(o *core.Op) { o.Verb, o.Cost = core.Debit, 9 })},
		"a smaller take":             {with(func(o *core.Op) { o.Cost = 2 })},
		"a booking":                  {with(func(o *core.Op) { o.Cost, o.MaxWait = 4, time.Hour })},
		"a take under another limit": {with(func(o *core.Op) { o.Limit, o.Cost = other, 1 })},
		"a peek under another limit": {with(func(o *core.Op) { o.Verb, o.Limit, o.Cost = core.Peek, other, 1 })},
		"a take among others":        {with(func(o *core.Op) { o.Cost = 2 }), {Rule: "q", Key: "k", Limit: l, Cost: 1}},
		"a reset among others": {{Rule: "q", Key: "k", Limit: l, Cost: 1},
			with(func(o *core.Op) { o.Verb = core.Reset })},
	} {
		// Eight of 10 are used, so 3 are refused, and remembered.
		p := newPair(t, addr)
		p.take(l, 8)
		if d, _ := p.take(l, 3); d.Allowed {
			t.Fatalf("%+v", d)
		}
		if _, asked := p.take(l, 3); asked {
			t.Fatal("the refusal is not remembered")
		}

		p.apply(step...)
		if _, asked := p.take(l, 3); !asked {
			t.Errorf("Redis was not asked after %s", what)
		}
	}
}

func TestRefusalCacheSkipsRefusalsThatMayEndEarlier(t *testing.T) {
	addr := redistest.Addr(t)
	ten := "10/1h"
	for what, row := range map[string]struct {
		limit string
		op    core.Op
	}{
		// The end of these refusals depends on what others do: leases end, bookings move, costs
		// differ.
		"a lease":           {"10 concurrent ttl=1h", core.Op{Cost: 1, Lease: "x"}},
		"a booking":         {ten, core.Op{Cost: 9, MaxWait: time.Minute}},
		"a peek":            {ten, core.Op{Verb: core.Peek, Cost: 1}},
		"two from a log":    {"10/1h sliding-log", core.Op{Cost: 2}},
		"two":               {ten, core.Op{Cost: 2}},
		"two of 7 per hour": {"7/1h burst=10", core.Op{Cost: 2}},
		// Nothing will ever grant more than fits, and a long key would cost memory.
		"more than fits": {ten, core.Op{Cost: 11}},
		"a long key":     {ten, core.Op{Cost: 1, Key: strings.Repeat("k", maxCachedKey+1)}},
	} {
		p := newPair(t, addr)
		row.op.Rule, row.op.Limit = "r", limit(t, row.limit)
		if row.op.Key == "" {
			row.op.Key = "k"
		}

		for i := range 10 {
			p.apply(core.Op{Rule: "r", Key: row.op.Key, Limit: row.op.Limit, Cost: 1, Lease: fmt.Sprint(i)})
		}

		for range 3 {
			if out, asked := p.apply(row.op); out[0].Allowed || !asked {
				t.Errorf("%s: %+v, asked %v", what, out[0], asked)
			}
		}
	}
}

// With several rules the decisions of the others are needed too.
func TestRefusalCacheSkipsStepsOfSeveralRules(t *testing.T) {
	p := newPair(t, redistest.Addr(t))
	l := limit(t, "10/1h")
	p.drain(l, 0)
	p.take(l, 1)
	op := core.Op{Rule: "r", Key: "k", Limit: l, Cost: 1}
	if _, asked := p.apply(op, core.Op{Rule: "q", Key: "k", Limit: l, Cost: 1}); !asked {
		t.Error("a step of two rules was answered from memory")
	}
	if _, asked := p.apply(op); asked {
		t.Error("a refused step made a refusal forgotten")
	}
}

func TestRefusalCacheForgetsAfterAClockStepBack(t *testing.T) {
	p := newPair(t, redistest.Addr(t))
	l := limit(t, "10/1h")
	p.drain(l, 0)
	p.take(l, 1)
	p.clock.Add(-time.Second)
	p.apply(core.Op{Verb: core.Peek, Rule: "r", Key: "k", Limit: l, Cost: 1})
	p.clock.Add(2 * time.Second)
	if _, asked := p.take(l, 1); !asked {
		t.Error("Redis was not asked")
	}
}

// memory returns a cache of n refusals and its clock.
func memory(n int) (*refusalCache, *int64) {
	now := new(int64)
	return newRefusalCache(n, func() int64 { return *now }), now
}

func refused(key string) (core.Op, core.Decision) {
	op := core.Op{Rule: "r", Key: key, Limit: core.Limit{Quota: 10, Period: time.Second}, Cost: 1}
	return op, core.Decision{RetryAfter: 50 * time.Microsecond, ResetAfter: 90 * time.Microsecond, At: 7000}
}

// A reset, refund or grant by another process is seen after a second, and not before.
func TestRefusalCacheSeesOtherProcessesAfterASecond(t *testing.T) {
	addr := redistest.Addr(t)
	l := limit(t, "10/10s fixed-window")
	for _, verb := range []core.Verb{core.Reset, core.Refund, core.Grant} {
		p := newPair(t, addr)

		// One process has used the limit and is refused until the window ends.
		op := core.Op{Rule: "r", Key: "k", Limit: l, Cost: 1}
		all := op
		all.Cost = 10
		apply(t, p.with, all)
		begun := p.clock.Now()
		end := begun + apply(t, p.with, op)[0].RetryAfter.Microseconds()

		other := MustNew(p.with.client, Options{Prefix: p.with.wire.prefix, Timeout: patient, Clock: p.clock.Now})

		// Another gives everything back, which Redis knows at once.
		apply(t, other, core.Op{Verb: verb, Rule: "r", Key: "k", Limit: l, Cost: 10, CreditUntil: end})

		// The first goes on refusing from what it remembers, to the last microsecond.
		for _, at := range []int64{begun, begun + 1e6 - 1} {
			p.clock.Set(at)
			if d := apply(t, p.with, op)[0]; d.Allowed || d.RetryAfter.Microseconds() != end-at {
				t.Errorf("%s, %d µs before the end: %+v", verb, end-at, d)
			}
			if d := apply(t, other, core.Op{Verb: core.Peek, Rule: "r", Key: "k", Limit: l, Cost: 10})[0]; !d.Allowed {
				t.Errorf("%s: Redis says %+v", verb, d)
			}
		}

		p.clock.Set(begun + 1e6)
		if d := apply(t, p.with, op)[0]; !d.Allowed {
			t.Errorf("%s, after a second: %+v", verb, d)
		}
	}
}

// begun begins a step of one operation.
func begun(r *refusalCache, op core.Op) *tickets {
	q := new(tickets)
	r.beforeStep(q, []core.Op{op})
	return q
}

// knows decides a step of one operation if its key is known to be refused.
func knows(r *refusalCache, q *tickets, op core.Op, d *core.Decision) bool {
	out := make([]core.Decision, 1)
	if !r.answer(q, []core.Op{op}, out) {
		return false
	}
	*d = out[0]
	return true
}

// The store decided at an instant from 100 to 130. It refuses until 150 at least,
// and until 180 at most.
func TestRefusalCacheTimesAreConservative(t *testing.T) {
	r, now := memory(4)
	op, d := refused("k")

	// The question and the answer bracket the instant of the decision.
	*now = 100
	q := begun(r, op)
	*now = 130
	r.afterStep(q, []core.Op{op}, []core.Decision{d}, nil)

	for at, want := range map[int64]core.Decision{
		// Until 150 the refusal is certain, and its numbers are those of the latest possible
		// decision.
		130: d,
		149: {RetryAfter: 31 * time.Microsecond, ResetAfter: 71 * time.Microsecond, At: 7019},
		150: {},
		200: {},
	} {
		*now = at
		r.latest.Store(0)
		var got core.Decision

		known := knows(r, begun(r, op), op, &got)
		if got != want || known != (want != core.Decision{}) {
			t.Errorf("at %d: %+v, known %v", at, got, known)
		}
	}
}

// The answer to an earlier question may come after a refund, and is then out of
// date.
func TestRefusalCacheSkipsRefusalsBeforeAChange(t *testing.T) {
	for _, err := range []error{nil, errors.New("no reply")} {
		r, _ := memory(4)
		op, d := refused("k")
		q := begun(r, op)
		undo := op
		undo.Verb = core.Refund
		r.afterStep(begun(r, undo), []core.Op{undo}, make([]core.Decision, 1), err)
		r.afterStep(q, []core.Op{op}, []core.Decision{d}, nil)
		if knows(r, begun(r, op), op, &d) {
			t.Errorf("remembered, with error %v of the refund", err)
		}
	}
}

func TestRefusalCacheIsBounded(t *testing.T) {
	r, _ := memory(1000)

	// A hundred times as many refusals as the cache holds, each known right after it was learned.
	for i := range 100_000 {
		op, d := refused(fmt.Sprint(i))
		r.afterStep(begun(r, op), []core.Op{op}, []core.Decision{d}, nil)
		if !knows(r, begun(r, op), op, &d) {
			t.Fatalf("key %d is not remembered", i)
		}
	}

	held := 0
	for i := range r.entries {
		if r.entries[i].Load() != nil {
			held++
		}
	}

	if held != 1000 {
		t.Errorf("%d refusals are held", held)
	}
}

// The refusal that ends first is replaced first.
func TestRefusalCacheKeepsLongRefusals(t *testing.T) {
	r, _ := memory(4)
	long, d := refused("long")
	d.RetryAfter = time.Hour
	r.afterStep(begun(r, long), []core.Op{long}, []core.Decision{d}, nil)
	for i := range 1000 {
		op, d := refused(fmt.Sprint(i))
		r.afterStep(begun(r, op), []core.Op{op}, []core.Decision{d}, nil)
	}
	if !knows(r, begun(r, long), long, &d) {
		t.Error("it is forgotten")
	}
}

func TestRefusalCacheAllocatesNothing(t *testing.T) {
	s, _ := fresh(t, redistest.Addr(t), Options{CacheRefusals: 10})
	ops := []core.Op{{Rule: "r", Key: "k", Limit: limit(t, "1/1h"), Cost: 1}}
	out := make([]core.Decision, 1)
	ctx := context.Background()
	apply(t, s, ops...)
	apply(t, s, ops...)
	if n := testing.AllocsPerRun(1000, func() { s.Apply(ctx, ops, out) }); n != 0 || out[0].Allowed {
		t.Errorf("%v allocations, %+v", n, out[0])
	}
}

func TestRefusalCacheIsSafeForConcurrentUse(t *testing.T) {
	r := newRefusalCache(8, nil)
	var all sync.WaitGroup

	// Eight goroutines over twenty keys in eight places, so that they replace each other's.
	for g := range 8 {
		all.Go(func() {
			for i := range 2000 {
				op, d := refused(fmt.Sprint(i % 20))
				q := begun(r, op)
				if knows(r, q, op, &d) && (d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > 50*time.Microsecond) {
					t.Errorf("%+v", d)
				}

				_, d = refused("")
				d.Allowed = (g+i)%7 == 0
				r.afterStep(q, []core.Op{op}, []core.Decision{d}, nil)
			}
		})
	}

	all.Wait()
}

func BenchmarkCachedRefusal(b *testing.B) {
	s, _ := fresh(b, redistest.Addr(b), Options{CacheRefusals: 1000})

	op := core.Op{Rule: "r", Key: "k", Limit: limit(b, "1/1h"), Cost: 1}
	apply(b, s, op)
	apply(b, s, op)

	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		ops, out := []core.Op{op}, make([]core.Decision, 1)
		for pb.Next() {
			if s.Apply(context.Background(), ops, out) != nil || out[0].Allowed {
				b.Error(out[0])
			}
		}
	})
}
