package faults

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"
)

// waits notes for how long the machine had no processor for this process and
// for the servers that it started, although they had something to do, so that the
// table blames no limiter for what no code could have done better. The kernel tells
// for each thread and processor, where it does at all, and Go for its goroutines.
type waits struct {
	end, done chan struct{}

	mu      sync.Mutex
	pids    []int
	samples []sample
}

// sample is what was waited in all from one look to the next.
type sample struct {
	from, to time.Time
	waited   time.Duration
}

// look is how often the kernel is asked.
const look = 10 * time.Millisecond

func newWaits() *waits {
	w := &waits{end: make(chan struct{}), done: make(chan struct{}), pids: []int{os.Getpid()}}
	go w.watch()
	return w
}

func (w *waits) stop() {
	close(w.end)
	<-w.done
}

// add looks after another process too, until it ends.
func (w *waits) add(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pids = append(w.pids, pid)
}

func (w *waits) watch() {
	defer close(w.done)
	tick := time.NewTicker(look)
	defer tick.Stop()
	known, queued, host := map[string]time.Duration{}, newRunQueue(), newSteal()
	for last := time.Now(); ; {
		waited := w.since(known)
		now := time.Now()
		waited = max(waited, now.Sub(last)-look, queued.worst(), host.worst()) // the machine itself may stand still
		w.mu.Lock()
		w.samples = append(w.samples, sample{last, now, waited})
		w.mu.Unlock()
		last = now
		select {
		case <-tick.C:
		case <-w.end:
			return
		}
	}
}

// since is what all threads have waited in addition to what is known.
func (w *waits) since(known map[string]time.Duration) (sum time.Duration) {
	w.mu.Lock()
	pids := w.pids[:len(w.pids):len(w.pids)]
	w.mu.Unlock()
	for _, pid := range pids {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil {
			continue
		}
		for _, file := range files {
			d := waitedOf(file)
			sum += max(0, d-known[file])
			known[file] = d
		}
	}
	return sum
}

// waitedOf reads a thread's time on a run queue: the second of three numbers.
func waitedOf(file string) time.Duration {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) != 3 {
		return 0
	}
	n, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n)
}

// runQueue is how long goroutines that could run have waited for a thread.
type runQueue struct {
	sample [1]metrics.Sample
	counts []uint64
}

func newRunQueue() *runQueue {
	q := &runQueue{}
	q.sample[0].Name = "/sched/latencies:seconds"
	q.worst()
	return q
}

// worst is the longest such wait since the last call. It is rounded up, by a
// quarter at most, as a request may have waited for so long.
func (q *runQueue) worst() (d time.Duration) {
	metrics.Read(q.sample[:])
	if q.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}
	h := q.sample[0].Value.Float64Histogram()
	for i := range h.Counts {
		if i < len(q.counts) && h.Counts[i] > q.counts[i] {
			d = seconds(h.Buckets[i], h.Buckets[i+1])
		}
	}
	q.counts = append(q.counts[:0], h.Counts...)
	return d
}

// seconds is the upper end of a bucket, or the lower one of the last.
func seconds(from, to float64) time.Duration {
	if math.IsInf(to, 1) {
		to = from
	}
	return time.Duration(max(0, to) * float64(time.Second))
}

// during is what was waited between two instants, or as part of looks that
// began before or ended after.
func (w *waits) during(from, to time.Time) (d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.samples) - 1; i >= 0 && w.samples[i].to.After(from); i-- {
		if s := w.samples[i]; !s.from.After(to) {
			d += s.waited
		}
	}
	return d
}
