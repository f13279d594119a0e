package collect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/worker"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// fake is a source and a ledger in memory. The source's clock is ahead by skew.
type fake struct {
	mu        sync.Mutex
	skew      time.Duration
	counts    map[time.Time]int64
	changed   map[time.Time]time.Time
	err       error
	reads     int
	collected map[string]time.Time
	recorded  map[time.Time]int64
	prunes    int
	addedUp   []map[time.Time]int64 // what was recorded at each call of AddUp
}

func newFake() *fake {
	return &fake{counts: map[time.Time]int64{}, changed: map[time.Time]time.Time{}, collected: map[string]time.Time{},
		recorded: map[time.Time]int64{}}
}

func (f *fake) now() time.Time { return time.Now().Add(f.skew).UTC() }

// count counts a request in a minute so long ago.
func (f *fake) count(ago time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.now().Add(-ago).Truncate(time.Minute)
	f.counts[m]++
	f.changed[m] = f.now()
}

// calls returns the minutes that were read and the parts that were pruned since the last call.
func (f *fake) calls() (reads, prunes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	reads, prunes = f.reads, f.prunes
	f.reads, f.prunes = 0, 0
	return reads, prunes
}

func (f *fake) Changed(_ context.Context, _ string, since time.Time) (list []time.Time, now time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for m, at := range f.changed {
		if !at.Before(since) {
			list = append(list, m)
		}
	}
	return list, f.now(), f.err
}

func (f *fake) Read(_ context.Context, _ string, minutes []time.Time) (list []stats.Minute, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads += len(minutes)
	for _, m := range minutes {
		list = append(list, stats.Minute{Start: m, Requests: stats.Counts{events.Allowed: f.counts[m]}})
	}
	return list, f.err
}

func (f *fake) Apps(context.Context) ([]string, error) { return []string{"a"}, nil }

func (f *fake) Collected(_ context.Context, app string) (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.collected[app], nil
}

func (f *fake) SetCollected(_ context.Context, app string, until time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.collected[app] = until
	return nil
}

func (f *fake) Record(_ context.Context, _ string, m stats.Minute) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recorded[m.Start] = max(f.recorded[m.Start], m.Requests.Total())
	return nil
}

func (f *fake) AddUp(context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addedUp = append(f.addedUp, maps.Clone(f.recorded))
}

func (f *fake) Prune(_ context.Context, _ time.Time, last int64) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prunes++
	return (last + 1) % 30, nil
}

// complete fails unless all finished minutes were recorded.
func (f *fake) complete(t *testing.T, when string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	want := maps.Clone(f.counts)
	delete(want, f.now().Truncate(time.Minute))
	got := maps.Clone(f.recorded)
	delete(got, f.now().Truncate(time.Minute))
	if !maps.Equal(got, want) {
		t.Errorf("%s: %v were recorded, want %v", when, got, want)
	}
}

func start(t *testing.T, f *fake) *worker.Worker {
	t.Helper()
	w := Start(f, f, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { w.Close() })
	return w
}

func TestWorkerMissesNothing(t *testing.T) {
	for _, workers := range []int{1, 3} {
		for _, skew := range []time.Duration{0, 90 * time.Second, -7 * time.Hour} {
			t.Run(fmt.Sprint(workers, skew), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFake()
					f.skew = skew

					// The counts of more than sixteen hours are there when the first console
					// starts.
					for i := range 100 { // before there was a console
						f.count(time.Duration(i) * 10 * time.Minute)
					}

					var list []*worker.Worker
					for range workers {
						list = append(list, start(t, f))
					}

					synctest.Wait()
					f.complete(t, "at the start")

					// An hour of requests, and now and then one of an instance that was cut off.
					for i := range 3600 {
						f.count(0)
						if i%100 == 0 {
							f.count(time.Duration(i) * time.Second) // an instance that was cut off
						}
						time.Sleep(time.Second)
					}

					time.Sleep(time.Minute + settle + spread)
					f.complete(t, "after an hour")

					for range 10 { // the only request of a minute comes before the one before is collected
						now := f.now()
						time.Sleep(now.Truncate(time.Minute).Add(time.Minute + time.Second).Sub(now))
						f.count(0)
					}

					time.Sleep(time.Minute + settle + spread)
					f.complete(t, "after quiet minutes")

					// While no console runs the counts go on, and the next one finds them.
					for _, w := range list {
						w.Close()
					}
					for range 100 {
						f.count(0)
						time.Sleep(10 * time.Minute)
					}

					start(t, f)
					synctest.Wait()
					f.complete(t, "after a pause")
				})
			})
		}
	}
}

// A quiet application costs a question a minute, and a busy one the reading of few minutes.
func TestWorkerReadsWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		for i := range 100 {
			f.count(time.Duration(i) * time.Minute)
		}

		start(t, f)
		time.Sleep(time.Minute + settle + spread)

		// What the start reads is not judged.
		f.calls()
		time.Sleep(time.Hour)

		reads, prunes := f.calls()
		if reads != 0 {
			t.Errorf("%d minutes were read without a change", reads)
		}
		if prunes < 60*pruneParts/2 {
			t.Errorf("%d parts were pruned in an hour", prunes)
		}

		for range 3600 {
			f.count(0)
			time.Sleep(time.Second)
		}

		if reads, _ := f.calls(); reads < 59 || reads > 120 {
			t.Errorf("%d minutes were read in an hour, want each once or twice", reads)
		}
	})
}

// What was collected is added up after each collection, also after one that fails in part, and at
// the start what was collected before.
func TestWorkerAddsUpAfterEachCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.count(time.Hour)
		start(t, f)
		synctest.Wait()

		// At the start nothing is recorded yet when it is first added up, and one minute
		// afterwards.
		if n := len(f.addedUp); n != 2 || len(f.addedUp[0]) != 0 || len(f.addedUp[1]) != 1 {
			t.Errorf("at the start %v was added up", f.addedUp)
		}

		for range 59 {
			f.count(0)
			time.Sleep(time.Minute)
		}

		time.Sleep(time.Minute - time.Nanosecond)
		synctest.Wait()

		if n := len(f.addedUp); n != 2+59 {
			t.Errorf("in an hour it was added up %d times, want once a minute", n-2)
		}

		for i, seen := range f.addedUp[2:] {
			if len(seen) != i+2 {
				t.Errorf("after minute %d the counts of %d minutes were added up", i+1, len(seen))
			}
		}

		// A collection that fails may have recorded a part, so it is added up as well.
		f.mu.Lock()
		f.err = errors.New("away")
		f.mu.Unlock()
		time.Sleep(settle + spread)
		synctest.Wait()

		if n := len(f.addedUp); n < 2+60 {
			t.Error("after a collection that failed nothing was added up")
		}
	})
}

func TestWorkerFollowsAClockThatIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()

		start(t, f)
		f.count(0)
		time.Sleep(2 * time.Minute)

		// The clock of the source goes back, and the new minute lies before one that was
		// collected.
		f.mu.Lock()
		f.skew = -5 * time.Hour
		f.mu.Unlock()
		f.count(0)
		time.Sleep(2 * time.Minute)

		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.recorded) != 2 {
			t.Errorf("%v", f.recorded)
		}
	})
}

func TestWorkerTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.count(time.Hour)
		f.err = errors.New("away")
		start(t, f)
		time.Sleep(10 * time.Minute)
		f.mu.Lock()
		f.err = nil
		f.mu.Unlock()

		time.Sleep(time.Minute)
		synctest.Wait()
		f.complete(t, "after the failure")
	})
}
