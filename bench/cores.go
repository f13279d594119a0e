package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store/memstore"
)

// coreCounts are the numbers of processors that the model speaks of.
var coreCounts = []int{1, 2, 4, 8, 16, 32, 64}

// A sharing is what the model knows of a work.
type sharing struct {
	alone float64 // ns of a decision on one processor
	lines float64 // cache lines written by a decision, which another processor may have
	move  float64 // ns that a line takes from one processor to another

	hottest float64 // part of the decisions that is about the key which is asked for most
	locked  bool    // decisions about one key exclude each other as a whole
}

// decisions returns how many millions a second n processors reach. On n processors a line is with
// another one n-1 times of n. Decisions about one key come one after the other: with a lock as a
// whole, and otherwise as fast as the line moves.
func (s *sharing) decisions(n int) float64 {
	others := float64(n-1) / float64(n)
	all := float64(n) / (s.alone + s.lines*s.move*others)

	// The line or the lock of the hottest key bounds the decisions about it, and with them all.
	serial := s.lines * s.move * others
	if s.locked {
		serial += s.alone
	}
	if serial > 0 {
		all = min(all, 1/(s.hottest*serial))
	}
	return 1e3 * all
}

// coresSection counts what processors share, and says what follows for many of them.
func coresSection(p pace) ([]Table, error) {
	counted, err := countedTable(p)
	if err != nil {
		return nil, err
	}

	columns := []string{}
	for _, n := range coreCounts {
		columns = append(columns, fmt.Sprint(n))
	}
	t := newTable("cores", "Many processors: millions of decisions a second by a model", coresNote(p), columns, nil)

	for _, name := range []string{uniform, zipf, hotKey} {
		w, lines := workOf(name), counted.figure(byRounds, linesMany)
		if name == hotKey {
			lines = counted.figure(byRounds, linesHot)
		}

		// The work is measured on one processor and on all that there are.
		peers := []memoryPeer{peerOf(memoryPeers, ours)}
		one := contest(compete(w, p, peers), p.rounds)[0]
		all := contest(compete(workOf(inParallel(name)), p, peers), p.rounds)[0]
		if err := errors.Join(one.failed, all.failed); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}

		s := sharing{one.median[0], lines, lineMove, hottestShare(w), name != hotKey}
		measured, model := t.row(name+", measured"), t.row(name+", model")
		for i, n := range coreCounts {
			model.Cells[i] = Figure(s.decisions(n))
			if n == runtime.GOMAXPROCS(0) {
				measured.Cells[i] = Figure(1e3 / all.median[0])
			}
		}
		measured.Cells[0] = Figure(1e3 / one.median[0])
	}
	return []Table{*counted, *t}, nil
}

// hottestShare returns the part of a walk that is at the key which comes most.
func hottestShare(w work) float64 {
	times := map[int32]int{}
	most := 0
	for _, i := range w.walk {
		times[i]++
		most = max(most, times[i])
	}
	return float64(most) / float64(len(w.walk))
}

// coresNote says what the model assumes, beside what this machine shows of it.
func coresNote(p pace) string {
	ns, retries := contended(p.round)
	return fmt.Sprintf("More than the %d processors of this machine were not measured: the rows called model are "+
		"arithmetic. A decision takes its time on one processor and, for each cache line that it writes and another "+
		"processor had last, %d ns for the line's move, as is usual between the cores of one socket. While two "+
		"goroutines incremented one word of this machine, an increment took %s ns, and a compare-and-swap in its place "+
		"failed %s times for each that succeeded; two threads of one core, or a busy machine, show less. Decisions "+
		"about one key follow each other: the hottest of the zipf keys, %.0f %% of all decisions, holds a lock for the "+
		"whole of a decision, and one hot key is a line that moves at each decision. The model leaves out the bandwidth "+
		"of the memory, more sockets and the scheduler.",
		runtime.NumCPU(), lineMove, Figure(ns), Figure(retries), 100*hottestShare(workOf(zipf)))
}

// lineMove is the assumed ns of a cache line's move from one core to another.
const lineMove = 50

// contended returns the ns of an increment while two goroutines increment one word, and how often a
// compare-and-swap of theirs fails for each that succeeds.
func contended(d time.Duration) (ns, retries float64) {
	var word, failures atomic.Int64
	n := both(d, func() { word.Add(1) })
	ns = float64(d) / float64(n)

	// Between reading the word and writing it the other goroutine may have written it.
	n = both(d, func() {
		for {
			w := word.Load()
			if word.CompareAndSwap(w, w+1) {
				return
			}
			failures.Add(1)
		}
	})
	return ns, float64(failures.Load()) / float64(n)
}

// both calls f in two goroutines until the time is over, and returns how often.
func both(d time.Duration, f func()) int64 {
	var all atomic.Int64
	var group sync.WaitGroup
	start := time.Now()
	for range 2 {
		group.Go(func() {
			n := int64(0)
			for ; n%1024 != 0 || time.Since(start) < d; n++ {
				f()
			}
			all.Add(n)
		})
	}
	group.Wait()
	return all.Load()
}

// The columns of what is counted.
const (
	linesMany = "lines, many keys"
	linesHot  = "lines, hot key"
	waitsMany = "lock waits, many keys"
	waitsHot  = "lock waits, hot key"
)

// countedTable counts what decisions under each algorithm share.
func countedTable(p pace) (*Table, error) {
	t := newTable("counted", "Many processors: what a decision shares, counted",
		"headgate's store. Lines are the cache lines that a decision about a known key writes and that other processors "+
			"may write too. Lock waits are those in a million decisions of two goroutines, without those that ended "+
			"before the goroutine slept.", []string{linesMany, linesHot, waitsMany, waitsHot}, nil)

	for i := range algorithms {
		a := &algorithms[i]
		row := t.row(a.name)
		for at, keys := range []int{sharedKeys, 1} {
			lines, err := a.linesWritten(keys)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", a.name, err)
			}
			waits, err := a.lockWaits(keys, p.round)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", a.name, err)
			}
			row.Cells[at], row.Cells[2+at] = Figure(lines), Figure(waits)
		}
	}
	return t, nil
}

// sharedKeys is how many keys are asked for in turn where there is more than one.
const sharedKeys = 1000

// linesWritten returns how many cache lines a decision writes, in the mean over many.
func (a *algorithm) linesWritten(keys int) (float64, error) {
	l, step, err := a.limitFor(keys)
	if err != nil {
		return 0, err
	}

	now := time.Now().UnixMicro()
	step = max(step, time.Microsecond)
	clock := func() int64 { now += step.Microseconds(); return now }

	// A store for fewer keys has fewer shards, which takes less to copy.
	s, err := memstore.New(memstore.Options{MaxKeys: 64 * sharedKeys, Clock: clock})
	if err != nil {
		return 0, err
	}

	// Each key is known, and one key is known to be hot.
	t, names := takeOf(s, l, "api"), addresses(keys)
	for i := range 4 * sharedKeys {
		t(names[i%keys])
	}

	const decisions = 40
	lines := 0
	for i := range decisions {
		before := snapshotOf(s)
		t(names[i%keys])
		lines += before.changed()
	}
	return float64(lines) / decisions, nil
}

// lockWaits returns how often a goroutine of two has slept before a lock of the store, in a million
// decisions.
func (a *algorithm) lockWaits(keys int, d time.Duration) (float64, error) {
	l, _, err := a.limitFor(keys)
	if err != nil {
		return 0, err
	}
	s, err := memstore.New(memstore.Options{})
	if err != nil {
		return 0, err
	}

	defer runtime.SetMutexProfileFraction(runtime.SetMutexProfileFraction(1))
	before, names := waitsInStore(), addresses(keys)
	var decisions atomic.Int64
	var group sync.WaitGroup
	// Half of the keys lies between the two, so that they meet at one key only by chance.
	start := time.Now()
	for g := range 2 {
		group.Go(func() {
			t, i := takeOf(s, l, "api"), g*keys/2
			for ; i%batch != 0 || time.Since(start) < d; i++ {
				t(names[i%keys])
			}
			decisions.Add(int64(i - g*keys/2))
		})
	}

	group.Wait()
	return 1e6 * float64(waitsInStore()-before) / float64(decisions.Load()), nil
}

// waitsInStore returns how often goroutines have slept before a lock of package memstore since
// their count began.
func waitsInStore() int64 {
	records := make([]runtime.BlockProfileRecord, 4096)
	n, _ := runtime.MutexProfile(records)

	total := int64(0)
	for _, r := range records[:min(n, len(records))] {
		frames := runtime.CallersFrames(r.Stack())
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if strings.Contains(f.Function, "store/memstore.") {
				total += r.Count
				break
			}
		}
	}
	return total
}
