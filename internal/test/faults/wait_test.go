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

	"github.com/headgate/headgate/internal/test"
)

// waits records for how long this process and the servers that it started could run but
// had no processor, so that the table does not count that time as a delay of the
// limiter. The kernel reports it for threads and processors, on some systems, and Go
// for its goroutines. It takes as much of a processor as the suite itself, so it records
// nothing where nobody asks for the figures.
type waits struct {
	end, done chan struct{}

	mu      sync.Mutex
	pids    []int
	samples []sample
}

// sample is the total of the waits between two measurements.
type sample struct {
	from, to time.Time
	waited   time.Duration
}

// interval is the time between measurements.
const interval = 10 * time.Millisecond

func newWaits() *waits {
	w := &waits{end: make(chan struct{}), done: make(chan struct{}), pids: []int{os.Getpid()}}
	if *tableFile == "" && !test.Measures() {
		close(w.done)
		return w
	}
	go w.run()
	return w
}

func (w *waits) stop() {
	close(w.end)
	<-w.done
}

// add also measures another process, until it ends.
func (w *waits) add(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pids = append(w.pids, pid)
}

func (w *waits) run() {
	defer close(w.done)
	tick := time.NewTicker(interval)
	defer tick.Stop()

	known, queued, host := map[string]time.Duration{}, newRunQueue(), newSteal()

	// Each round measures since the one before, whatever the ticker missed.
	for last := time.Now(); ; {
		waited := w.since(known)
		now := time.Now()

		// The longest of four measures: any of them alone misses some of the waits.
		waited = max(waited, now.Sub(last)-interval, queued.worst(), host.worst()) // the machine itself may stand still
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

// since returns the waits of all threads since the last measurement.
func (w *waits) since(known map[string]time.Duration) (sum time.Duration) {
	w.mu.Lock()
	pids := w.pids[:len(w.pids):len(w.pids)]
	w.mu.Unlock()

	// The processes that are known now; others may be added meanwhile.
	for _, pid := range pids {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil {
			continue
		}

		for _, file := range files {
			// Threads come and go. A new one has waited nothing before.
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

// runQueue measures how long goroutines that could run have waited for a thread.
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

// worst returns the longest such wait since the last call. It is rounded up, by a
// quarter at most, because a request may have waited that long.
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

// seconds returns the upper end of a bucket, or the lower end of the last bucket.
func seconds(from, to float64) time.Duration {
	if math.IsInf(to, 1) {
		to = from
	}
	return time.Duration(max(0, to) * float64(time.Second))
}

// during returns the waits between two instants, and those of measurements that began
// before or ended after.
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
