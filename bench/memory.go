package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// work is the work of all memory peers.
type work struct {
	name     string
	quota    quota
	keys     []string
	walk     []int32 // over the keys; a power of two long
	parallel bool
}

// walkLength is too long for any cache of a processor.
const walkLength = 1 << 20

var onlyKey = []string{"192.0.2.1"}

// The works that are compared by name.
const (
	hotKey  = "hot key"
	uniform = "100k uniform"
	zipf    = "100k zipf"
)

// inParallel is the name of a work on all processors.
func inParallel(name string) string { return name + ", parallel" }

// works are the columns of the memory table. Making the walks takes a while.
var works = sync.OnceValue(func() []work {
	keys := addresses(100_000)
	one := make([]int32, 1)
	even, skewed := walkOver(len(keys), false), walkOver(len(keys), true)

	return []work{
		{hotKey, wide, onlyKey, one, false},
		{inParallel(hotKey), wide, onlyKey, one, true},
		{refused, narrow, onlyKey, one, false},
		{inParallel(refused), narrow, onlyKey, one, true},
		{uniform, wide, keys, even, false},
		{inParallel(uniform), wide, keys, even, true},
		{zipf, wide, keys, skewed, false},
		{inParallel(zipf), wide, keys, skewed, true},
	}
})

const memoryTitle = "In memory: ns a decision"

// workOf returns the work of that name.
func workOf(name string) work {
	for _, w := range works() {
		if w.name == name {
			return w
		}
	}
	panic("there is no work " + name)
}

func addresses(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
	}
	return keys
}

// walkOver returns a random walk over n keys. The seed is fixed, so all contenders
// and all runs take the same walk.
func walkOver(n int, zipf bool) []int32 {
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, 1.1, 1, uint64(n-1))
	walk := make([]int32, walkLength)
	for i := range walk {
		walk[i] = int32(r.IntN(n))
		if zipf {
			walk[i] = int32(z.Uint64())
		}
	}
	return walk
}

func memorySection(p pace) ([]Table, error) {
	f, err := footprint(p)
	if err != nil {
		return nil, err
	}

	list := works()
	columns := []string{}
	for _, w := range list {
		columns = append(columns, w.name)
	}

	names := []string{}
	for _, peer := range memoryPeers {
		names = append(names, peer.name)
	}

	t := newTable("memory", memoryTitle,
		fmt.Sprintf("Medians of %d interleaved rounds, %d CPUs. Parallel: the wall's time, divided by all decisions.", p.rounds, runtime.GOMAXPROCS(0)),
		append(columns, "allocations"), names)

	for i, w := range list {
		t.enter(i, contest(compete(w, p, memoryPeers), p.rounds))
	}
	t.enter(len(list), allocations())
	return []Table{*t, *algorithmTable(p), *f, *returnedTable(p)}, nil
}

// compete prepares the memory peers for the work.
func compete(w work, p pace, peers []memoryPeer) []contender {
	var list []contender

	// A peer that cannot open fails in its turn, and is reported with the others.
	for _, peer := range peers {
		if peer.keyless && len(w.keys) > 1 {
			continue
		}
		list = append(list, contender{peer.name, func() ([]float64, error) { return nil, nil }})
		worker, err := peer.open(w.quota)
		if err == nil {
			err = passes(peer.examine)
		}
		if err != nil {
			list[len(list)-1].once = func() ([]float64, error) { return nil, err }
			continue
		}
		prime(worker(), w)
		list[len(list)-1].once = func() ([]float64, error) { return w.measureOnce(worker, p.round) }
	}

	// What opening and priming have left behind must not be swept in the turn of the first.
	runtime.GC()
	return list
}

// prime makes every key known and uses up the quota, if it is narrow.
// It passes copies of the keys: a limiter must not keep the very strings that the
// requests use, because strings with equal pointers are not compared.
func prime(t take, w work) {
	for _, k := range w.keys {
		k = strings.Clone(k)
		t(k)
		t(k)
	}
}

// batch is the number of decisions between two readings of the clock. The figure of
// a turn is the median of its batches or, in parallel, of its windows, so that a
// batch which other work of the machine disturbed does not count.
const batch = 2048

// measureOnce measures the ns of a decision. A decision other than the work expects is an
// error.
func (w work) measureOnce(worker func() take, d time.Duration) ([]float64, error) {
	n := 1
	if w.parallel {
		n = runtime.GOMAXPROCS(0)
	}

	w.loop(worker(), 0, d/4) // fills the caches, which hold a rival's data
	var times []float64
	var bad int64

	// Each race begins further on in the walk, so that it does not find its keys in the caches.
	for start := time.Now(); time.Since(start) < d; {
		t, b := w.race(worker, n, len(times)*n*batch)
		times = append(times, t)
		bad += b
	}

	if bad > 0 {
		return nil, fmt.Errorf("%s: %d decisions are wrong", w.name, bad)
	}
	return []float64{median(times)}, nil
}

// window is how long the goroutines run between two readings of the clock.
const window = 5 * time.Millisecond

// race runs the work in n goroutines for a window and returns the elapsed time,
// divided by the number of all decisions.
func (w work) race(worker func() take, n, at int) (ns float64, bad int64) {
	var all, wrong atomic.Int64
	var group sync.WaitGroup

	d := window
	if n == 1 {
		d = 0 // one batch
	}

	start := time.Now()
	// Each goroutine begins at another place of the walk.
	for g := range n {
		group.Go(func() {
			done, bad := w.loop(worker(), at+g*walkLength/n, d)
			all.Add(done)
			wrong.Add(bad)
		})
	}

	group.Wait()
	return float64(time.Since(start)) / float64(all.Load()), wrong.Load()
}

// loop takes units of the keys of the walk from at on, in one batch or more.
func (w work) loop(t take, at int, d time.Duration) (done, bad int64) {
	want := w.quota != narrow
	for start := time.Now(); done == 0 || time.Since(start) < d; done += batch {
		for range batch {
			if t(w.keys[w.walk[at&(len(w.walk)-1)]]) != want {
				bad++
			}
			at++
		}
	}
	return done, bad
}

// allocations returns the allocations of a decision about a known key.
func allocations() []outcome {
	var list []contender
	for _, peer := range memoryPeers {
		list = append(list, contender{peer.name, func() ([]float64, error) {
			worker, err := peer.open(wide)
			if err != nil {
				return nil, err
			}
			t := worker()
			prime(t, work{keys: onlyKey})
			return []float64{mallocs(10_000, func() { t(onlyKey[0]) })}, nil
		}})
	}

	// The number is the same in each round, so one is enough.
	return contest(list, 1)
}

// mallocs returns how many allocations a call of f makes, rounded as in package
// testing.
func mallocs(n int, f func()) float64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64((after.Mallocs - before.Mallocs) / uint64(n))
}
