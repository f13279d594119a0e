package quietlog

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeatsTellsTheFirstAndThenNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Reports come from the goroutine of a timer.
		var mu sync.Mutex
		var got []string
		tell := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, s)
		}

		r := NewRepeats(time.Second, func(n int64) { tell(fmt.Sprint(n)) })
		add := func(n int) {
			for range n {
				if r.Add() {
					tell("first")
				}
			}

		}
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}

		// Three at once are a first one and a number; a second later the timer still runs.
		add(3)
		wait(time.Second)

		// A second with an event goes on into the next one. The 0 of one without says that the
		// timer has stopped, so the next event is a first one again.
		add(1)
		wait(2 * time.Second) // one with an event, and one without
		add(1)
		wait(time.Second)

		// The end reports what is counted, and a second end nothing again.
		add(2)
		r.Close()
		r.Close()

		if want := []string{"first", "2", "1", "0", "first", "0", "first", "1"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// However many goroutines add at once, each event is told once: as a first one or in a number.
func TestRepeatsLosesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const goroutines, each = 8, 2000
		var first, numbers atomic.Int64

		r := NewRepeats(time.Second, func(n int64) { numbers.Add(n) })
		var done sync.WaitGroup

		// The pauses let timers run and stop while others add, which is where an event could get
		// lost.
		for range goroutines {
			done.Go(func() {
				for i := range each {
					if r.Add() {
						first.Add(1)
					}
					if i%100 == 0 {
						time.Sleep(time.Second) // until a report is due
					}
				}
			})
		}

		done.Wait()
		r.Close()
		synctest.Wait()

		// Both ways have been used, else the sum would show nothing.
		if n := first.Load() + numbers.Load(); n != goroutines*each || first.Load() == 0 || numbers.Load() == 0 {
			t.Errorf("%d of %d are told, %d of them at once", n, goroutines*each, first.Load())
		}
	})
}

// An event that has been counted when the end counts it is not also the first of its kind. Before,
// it was reported twice, and a minute later as -1.
func TestRepeatsCountsAnEventOfTheEndOnce(t *testing.T) {
	r := NewRepeats(time.Second, func(n int64) { t.Errorf("%d are reported", n) })

	// The event waits for the lock, which the end holds.
	r.mu.Lock()
	first := make(chan bool)
	go func() { first <- r.Add() }()
	for r.since.Load() == 0 {
		runtime.Gosched()
	}
	n := r.stopLocked()
	r.mu.Unlock()

	if again := <-first; n != 1 || again {
		t.Errorf("%d at the end, and first: %v, want 1 and false", n, again)
	}
	if r.timer != nil || r.since.Load() != 0 {
		t.Errorf("a timer runs: %v, %d are left", r.timer != nil, r.since.Load())
	}
}
