package memstore

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

var (
	// wide never refuses, and its keys stay in use.
	wide   = core.Limit{Quota: 1_000_000, Period: time.Hour, Burst: 900_000_000}
	narrow = core.Limit{Quota: 1, Period: time.Hour}
)

// apply is one decision, through the interface as a limiter makes it.
func apply(b *testing.B, s core.Store, ops []core.Op, out []core.Decision) {
	if err := s.Apply(b.Context(), ops, out); err != nil {
		b.Fatal(err)
	}
}

func take(key string, l core.Limit) []core.Op {
	return []core.Op{{Rule: "api", Key: key, Limit: l, Cost: 1}}
}

func benchmarkOneKey(b *testing.B, l core.Limit) {
	run := func(b *testing.B, s core.Store) func(*testing.PB) {
		return func(pb *testing.PB) {
			ops, out := take("192.0.2.1", l), make([]core.Decision, 1)
			for pb.Next() {
				apply(b, s, ops, out)
			}
		}
	}

	// The serial figure is the cost of a decision, the parallel one that of the contention for one
	// shard.
	b.Run("serial", func(b *testing.B) {
		s := MustNew(Options{})
		ops, out := take("192.0.2.1", l), make([]core.Decision, 1)
		b.ReportAllocs()
		for b.Loop() {
			apply(b, s, ops, out)
		}
	})

	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(run(b, MustNew(Options{})))
	})
}

// BenchmarkCrowd has many goroutines ask for one key and reports how long the
// slowest hundredth and thousandth of the decisions took, the reading of the
// time included. A lock that is handed over from one to the next would show.
func BenchmarkCrowd(b *testing.B) {
	for _, l := range []core.Limit{wide, narrow} {
		for _, n := range []int{2, 64} {
			b.Run(fmt.Sprintf("%v/goroutines=%d", l, n), func(b *testing.B) { crowd(b, l, n) })
		}
	}
}

func crowd(b *testing.B, l core.Limit, n int) {
	s := MustNew(Options{})
	each := b.N/n + 1

	// The times are kept one by one, since a mean would hide the few who wait long; memory for them
	// is taken before the clock starts.
	times := make([]time.Duration, n*each)
	b.ResetTimer()
	concurrently(n, func(g int) {
		ops, out := take("192.0.2.1", l), make([]core.Decision, 1)
		for i := range each {
			start := time.Now()
			apply(b, s, ops, out)
			times[g*each+i] = time.Since(start)
		}
	})

	b.StopTimer()
	slices.Sort(times)

	// The mean of a crowd says little about those at its end.
	for name, part := range map[string]float64{"p50-ns": 0.5, "p99-ns": 0.99, "p999-ns": 0.999} {
		b.ReportMetric(float64(times[int(part*float64(len(times)-1))]), name)
	}
}

func BenchmarkAdmittedKey(b *testing.B) { benchmarkOneKey(b, wide) }
func BenchmarkRefusedKey(b *testing.B)  { benchmarkOneKey(b, narrow) }

func addresses(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("10.%03d.%03d.%03d", i>>16&255, i>>8&255, i&255)[:13]
		keys[i] = keys[i][:7] + strconv.Itoa(100000+i)
	}
	return keys
}

// order is a long random walk over n keys, drawn beforehand.
func order(n int, zipf bool) []int32 {
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, 1.1, 1, uint64(n-1))
	at := make([]int32, 1<<20)
	for i := range at {
		if zipf {
			at[i] = int32(z.Uint64())
		} else {
			at[i] = r.Int32N(int32(n))
		}
	}
	return at
}

func benchmarkManyKeys(b *testing.B, zipf bool) {
	const n = 100_000
	keys, walk := addresses(n), order(n, zipf)
	s := MustNew(Options{})

	// Each key has used much of a wide limit before, so that no slot is inserted or forgotten while
	// it is measured.
	for _, k := range keys {
		op := take(k, wide)
		op[0].Cost = 100_000
		apply(b, s, op, make([]core.Decision, 1))
	}

	// The walk has 2^20 steps and is drawn beforehand: drawing would cost more than the decision.
	b.Run("serial", func(b *testing.B) {
		ops, out := take("", wide), make([]core.Decision, 1)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			ops[0].Key = keys[walk[i&(1<<20-1)]]
			apply(b, s, ops, out)
		}
	})

	// The goroutines start at places of the walk that lie apart, so that they do not meet on one
	// key.
	b.Run("parallel", func(b *testing.B) {
		var start atomic.Int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			ops, out := take("", wide), make([]core.Decision, 1)
			for i := int(start.Add(1 << 17)); pb.Next(); i++ {
				ops[0].Key = keys[walk[i&(1<<20-1)]]
				apply(b, s, ops, out)
			}
		})
	})
}

func BenchmarkUniformKeys(b *testing.B) { benchmarkManyKeys(b, false) }
func BenchmarkZipfKeys(b *testing.B)    { benchmarkManyKeys(b, true) }

// BenchmarkBareStep is the part of a decision on one key that is not the
// store's: the clock and the arithmetic.
func BenchmarkBareStep(b *testing.B) {
	clock := monotonic()
	ops, out, st := take("", wide), make([]core.Decision, 1), new(core.State)

	b.Run("clock", func(b *testing.B) {
		for b.Loop() {
			clock()
		}
	})

	b.Run("arithmetic", func(b *testing.B) {
		for b.Loop() {
			states := [1]*core.State{st}
			core.Decide(ops, states[:], 1_000_000_000_000, out)
		}
	})
}

func BenchmarkThreeRules(b *testing.B) {
	s := MustNew(Options{})
	ops := []core.Op{
		{Rule: "second", Key: "192.0.2.1", Limit: wide, Cost: 1},
		{Rule: "minute", Key: "192.0.2.1",
			Limit: core.Limit{Quota: 20_000, Period: time.Minute, Burst: 900_000_000}, Cost: 1},
		{Rule: "site", Limit: core.Limit{Quota: 300, Period: time.Second, Burst: 900_000_000}, Cost: 1},
	}
	out := make([]core.Decision, 3)
	b.ReportAllocs()
	for b.Loop() {
		apply(b, s, ops, out)
	}
}

// BenchmarkRules is a step of several rules about one of a thousand keys: all
// rules have room, or the last has none.
func BenchmarkRules(b *testing.B) {
	for _, n := range []int{1, 3, 10} {
		b.Run(fmt.Sprintf("allowed/rules=%d", n), func(b *testing.B) { rules(b, n, wide) })
		b.Run(fmt.Sprintf("refused/rules=%d", n), func(b *testing.B) { rules(b, n, narrow) })
	}
}

func rules(b *testing.B, n int, last core.Limit) {
	s := MustNew(Options{})
	keys, ops, out := addresses(1000), make([]core.Op, n), make([]core.Decision, n)

	ask := func(key string) {
		for i := range ops {
			ops[i].Key = key
		}
		apply(b, s, ops, out)
	}

	// All rules but the last never refuse; the last decides whether the step does.
	for i := range ops {
		ops[i] = core.Op{Rule: fmt.Sprintf("rule%d", i), Limit: wide, Cost: 100_000}
	}
	ops[n-1].Limit, ops[n-1].Cost = last, 1

	// The first steps take much from each key, the measured ones a unit, so that no key becomes
	// fresh on the way.
	for _, key := range keys {
		ask(key)
	}
	for i := range ops {
		ops[i].Cost = 1
	}

	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		ask(keys[i%len(keys)])
	}
}

// BenchmarkNewKeys is a flood of keys that were never seen: until the store is
// full, and from then on.
func BenchmarkNewKeys(b *testing.B) {
	for _, maxKeys := range []int{1 << 24, 1 << 12} {
		b.Run(fmt.Sprintf("max=%d", maxKeys), func(b *testing.B) {
			s := MustNew(Options{MaxKeys: maxKeys})
			ops, out := take("", core.Limit{Quota: 10, Period: time.Minute}), make([]core.Decision, 1)
			var key [16]byte
			b.ReportAllocs()
			for i := int64(1000000000); b.Loop(); i++ {
				ops[0].Key = string(strconv.AppendInt(key[:0], i, 10))
				apply(b, s, ops, out)
			}
		})
	}
}

// heap returns the bytes of the heap that are in use. Differences may be below zero.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkMemory reports what a key of 13 bytes costs, and what is left of
// that after all have become fresh and one key alone is asked for.
func BenchmarkMemory(b *testing.B) {
	for _, n := range []int{700_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			for b.Loop() {
				measureMemory(b, n)
			}
		})
	}
}

func measureMemory(b *testing.B, n int) {
	now := int64(1_000_000_000)
	before := heap()

	// Each read moves the clock by a microsecond: the sweep goes on, but no key expires while the
	// table fills.
	s := MustNew(Options{Clock: func() int64 { now++; return now }})
	limit := core.Limit{Quota: 10, Period: time.Minute}
	ops, out := take("", limit), make([]core.Decision, 1)

	for i := range n {
		ops[0].Key = fmt.Sprintf("key%010d", i)
		apply(b, s, ops, out)
	}
	b.ReportMetric((heap()-before)/float64(n), "B/key")

	// All keys are fresh after an hour. Takes of one key alone have to sweep them away, as no
	// background task does.
	now += time.Hour.Microseconds()
	steps := 0
	for ops[0].Key = "one"; s.Len() > 1; steps++ {
		apply(b, s, ops, out)
	}

	b.ReportMetric((heap()-before)/float64(n), "B/key-after")
	b.ReportMetric(float64(steps)/float64(n), "steps/key-freed")
	runtime.KeepAlive(s)
}
