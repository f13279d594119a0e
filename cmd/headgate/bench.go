// This file measures whether a Redis is fast enough.

package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/store/redisstore"
)

var benchCommand = command{
	name: "bench", args: "",
	does: "measures how fast a Redis decides; it loads the server as much as it can",
	examples: []string{
		"headgate bench -redis redis://127.0.0.1:6379",
		"headgate bench -for 30s -json",
	},
	setup: func(f *flag.FlagSet) func(*env, []string) int {
		var r redisFlags
		r.define(f)
		span := f.Duration("for", 10*time.Second, "how long it measures, 1s to 1m")
		return func(e *env, args []string) int { return bench(e, args, &r, *span) }
	},
}

const (
	benchKeys = 1000 // different keys

	// benchRule and benchLimit are those of the decisions. The limit refuses none.
	benchRule  = "bench"
	benchLimit = "1000000/1h"
)

// rounds are the numbers of callers, and how many times as long as a PING a decision takes by the
// rates of docs/benchmarks.md, with a Redis on the same machine.
var rounds = []struct {
	callers    int
	documented float64
}{{1, 1.3}, {10, 1.6}, {100, 0.4}}

// roundResult is what was measured with a number of callers. Times are in microseconds.
type roundResult struct {
	Callers   int     `json:"callers"`
	Decisions int     `json:"decisions"`
	Seconds   float64 `json:"seconds"`

	P50     int64 `json:"p50_us"`
	P99     int64 `json:"p99_us"`
	PingP50 int64 `json:"ping_p50_us"`
	PingP99 int64 `json:"ping_p99_us"`

	OfPing     float64 `json:"p50_of_ping"` // P50 by PingP50
	Documented float64 `json:"documented_of_ping"`

	Late   int `json:"late"` // decisions that took longer than the budget
	Failed int `json:"failed"`
}

// benchResult is what bench prints as JSON.
type benchResult struct {
	BudgetMS int64         `json:"budget_ms"`
	Fits     bool          `json:"fits"`
	Error    string        `json:"error,omitempty"` // of the first decision that failed
	Rounds   []roundResult `json:"rounds"`
}

func bench(e *env, args []string, f *redisFlags, span time.Duration) int {
	switch {
	case len(args) > 0:
		return e.fail("bench: %q is no flag, and there is no operand", safe(textform.Clip(args[0])))
	case span < time.Second || span > time.Minute:
		return e.fail("bench: -for: %s is not within 1s to 1m", span)
	}

	ctx, end := e.context()
	defer end()
	client, err := f.connect(ctx)
	if err != nil {
		return e.failed("bench", err)
	}
	defer client.Close()

	// The keys are removed whatever ends the measurement.
	b, err := newBencher(client, f.prefix)
	if err != nil {
		return e.failed("bench", err)
	}
	result := b.run(ctx, span)

	if err := b.remove(); err != nil {
		return e.fail("bench: the keys %s* could not be removed, and expire within an hour: %s", safe(b.prefix),
			safe(textform.Line(err)))
	}
	if ctx.Err() != nil {
		return e.fail("bench: interrupted; the keys are removed")
	}
	return result.print(e, f.json)
}

// benchBudget is how long a decision may take, so that a service waits for no longer. Tests give a
// busy machine more.
var benchBudget = redisstore.DefaultTimeout

// bencher makes the calls that are measured.
type bencher struct {
	client redis.UniversalClient
	store  *redisstore.Store
	prefix string // of the keys, which no other process has
	limit  core.Limit
}

// newBencher returns a bencher whose keys are under the prefix of the services, because the user
// may have no others.
func newBencher(client redis.UniversalClient, prefix string) (*bencher, error) {
	b := &bencher{client: client, prefix: prefix + "bench-" + rand.Text() + ":",
		limit: core.MustParseLimit(benchLimit)}
	var err error
	b.store, err = redisstore.New(client, redisstore.Options{Prefix: b.prefix, Timeout: callTime})
	return b, err
}

// run measures each number of callers for the same time, half of it by PINGs.
func (b *bencher) run(ctx context.Context, span time.Duration) *benchResult {
	result := &benchResult{BudgetMS: benchBudget.Milliseconds(), Fits: true}
	each := span / time.Duration(2*len(rounds))
	for _, r := range rounds {
		pings := measure(ctx, r.callers, each, b.ping)
		decisions := measure(ctx, r.callers, each, b.decide)
		if err := decisions.err; err != nil && result.Error == "" {
			result.Error = textform.Line(explained(err))
		}

		x := roundResult{Callers: r.callers, Decisions: len(decisions.took), Seconds: each.Seconds(),
			P50: decisions.part(50), P99: decisions.part(99), PingP50: pings.part(50), PingP99: pings.part(99),
			Documented: r.documented, Late: decisions.above(benchBudget), Failed: decisions.failed}
		x.OfPing = float64(x.P50) / float64(max(1, x.PingP50))
		result.Fits = result.Fits && x.fits()
		result.Rounds = append(result.Rounds, x)
	}
	return result
}

// fits reports whether 99 of 100 decisions are in time, and none has failed.
func (r *roundResult) fits() bool {
	return r.Failed == 0 && r.Decisions > 0 && r.P99 <= benchBudget.Microseconds()
}

func (b *bencher) ping(ctx context.Context, _ int) error { return b.client.Ping(ctx).Err() }

func (b *bencher) decide(ctx context.Context, i int) error {
	op := core.Op{Rule: benchRule, Key: benchKey(i), Limit: b.limit, Cost: 1}
	var out [1]core.Decision
	if err := b.store.Apply(ctx, []core.Op{op}, out[:]); err != nil {
		return err
	}
	if !out[0].Allowed {
		return fmt.Errorf("a request under %s was refused", benchLimit)
	}
	return nil
}

// benchKey returns the key of a call.
func benchKey(i int) string { return "k" + strconv.Itoa(i%benchKeys) }

// remove deletes the keys of the decisions, also after an interrupt. Their names are those that
// docs/redis.md describes.
func (b *bencher) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	_, err := b.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range benchKeys {
			p.Del(ctx, b.prefix+"{"+benchKey(i)+"}:"+benchRule+":g")
		}
		return nil
	})
	return err
}

// sample is what calls took.
type sample struct {
	took   []time.Duration // in ascending order
	failed int
	err    error // of the first that failed
}

// measure has callers call one after another for a time, each at least once. A call is not broken
// off at its end.
func measure(ctx context.Context, callers int, span time.Duration, call func(context.Context, int) error) *sample {
	var mu sync.Mutex
	var s sample
	var callersAtWork sync.WaitGroup

	// The first calls make the connections, and load the script.
	for i := range callers {
		callersAtWork.Go(func() { _ = call(ctx, i) })
	}
	callersAtWork.Wait()

	until := time.Now().Add(span)
	for i := range callers {
		callersAtWork.Go(func() {
			var own sample
			for first := true; (first || time.Now().Before(until)) && ctx.Err() == nil; i += callers {
				first = false
				begin := time.Now()
				if err := call(ctx, i); err != nil {
					own.fail(err)
					continue
				}
				own.took = append(own.took, time.Since(begin))
			}

			mu.Lock()
			defer mu.Unlock()
			s.add(&own)
		})
	}
	callersAtWork.Wait()
	slices.Sort(s.took)
	return &s
}

func (s *sample) fail(err error) {
	if s.failed++; s.err == nil {
		s.err = err
	}
}

func (s *sample) add(other *sample) {
	s.took = append(s.took, other.took...)
	s.failed += other.failed
	if s.err == nil {
		s.err = other.err
	}
}

// part returns the time in microseconds within which so many of 100 calls ended.
func (s *sample) part(of int) int64 {
	if len(s.took) == 0 {
		return 0
	}
	return s.took[(len(s.took)-1)*of/100].Microseconds()
}

// above returns how many calls took longer.
func (s *sample) above(d time.Duration) int {
	i, _ := slices.BinarySearch(s.took, d+1)
	return len(s.took) - i
}

// print prints the result. That the budget does not fit is a finding.
func (b *benchResult) print(e *env, asJSON bool) int {
	code := fine
	if !b.Fits {
		code = findings
	}
	if asJSON {
		return max(code, e.printJSON(b))
	}

	t := table{head: []string{"#callers", "#decisions/s", "#p50", "#p99", "#PING p50", "#PING p99", "#p50 by PING's",
		"#documented"}}
	slowest, late, failed, all := int64(0), 0, 0, 0
	for _, r := range b.Rounds {
		t.add(strconv.Itoa(r.Callers), count(int64(float64(r.Decisions)/r.Seconds)), micros(r.P50), micros(r.P99),
			micros(r.PingP50), micros(r.PingP99), strconv.FormatFloat(r.OfPing, 'f', 1, 64),
			strconv.FormatFloat(r.Documented, 'f', 1, 64))
		slowest, late, failed, all = max(slowest, r.P99), late+r.Late, failed+r.Failed, all+r.Decisions
	}
	t.print(e)

	// One sentence says whether that suffices.
	if b.Fits {
		fmt.Fprintf(e.out, "\nthe %d ms of a call %s: 99 of 100 decisions took at most %s; %s of %s took longer\n",
			b.BudgetMS, e.paint(green, "suffice"), micros(slowest), count(int64(late)), count(int64(all)))
		return code
	}
	fmt.Fprintf(e.out, "\nthe %d ms of a call %s: %s of %s took longer, and %s failed; see docs/redis.md#timeouts\n",
		b.BudgetMS, e.paint(red, "do not suffice"), count(int64(late)), counted(int64(all), "decision"),
		count(int64(failed)))
	if b.Error != "" {
		fmt.Fprintf(e.out, "the first that failed: %s\n", safe(b.Error))
	}
	return code
}

// micros writes a time of microseconds.
func micros(us int64) string { return short(time.Duration(us) * time.Microsecond) }
