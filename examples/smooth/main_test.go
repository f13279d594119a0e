package main

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/examples/internal/try"
)

func TestABurstComesThroughEvenlySpaced(t *testing.T) {
	// The clock of the store stands still, so that the turns are 0, 50, 100 …
	// 450 ms from when a request comes, and the eleventh would be too late.
	s := try.Start(t, &program{}, "-limit", "20/1s burst=1", "-wait", "450ms")
	var mu sync.Mutex
	var served []time.Duration
	refused := 0
	var all sync.WaitGroup
	start := time.Now()
	for range 15 {
		all.Go(func() {
			a := s.Get("/")
			took := time.Since(start)
			mu.Lock()
			defer mu.Unlock()
			if a.Status == 200 {
				served = append(served, took)
			} else if a.Status == 429 && a.Show("Retry-After") == "1" {
				refused++
			}
		})
	}
	all.Wait()
	if len(served) != 10 || refused != 5 {
		t.Fatalf("%d served, %d refused", len(served), refused)
	}
	slices.Sort(served)
	for i, took := range served {
		if least := time.Duration(i) * 50 * time.Millisecond; took < least {
			t.Errorf("request %d came through after %v, before its turn at %v", i, took, least)
		}
	}
}

func TestWhoWouldWaitTooLongIsRefusedAtOnce(t *testing.T) {
	s := try.Start(t, &program{}, "-limit", "1/1m burst=1", "-wait", "59s")
	if a := s.Get("/"); a.Status != 200 {
		t.Errorf("first: %d", a.Status)
	}
	if a := s.Get("/"); a.Status != 429 || a.Show("Retry-After") != "60" {
		t.Errorf("second: %d, Retry-After %s", a.Status, a.Show("Retry-After"))
	}
	s.Pass(time.Minute)
	if a := s.Get("/"); a.Status != 200 {
		t.Errorf("a minute later: %d", a.Status)
	}
}

func TestWhoWaitsWhenTheProgramEndsIsRefused(t *testing.T) {
	s := try.Start(t, &program{}, "-limit", "1/1m burst=1", "-wait", "1m")
	s.Get("/")
	answers := make(chan string, 2)
	for range 2 {
		go func() { answers <- s.Get("/").Show("Retry-After") }()
	}
	// One of them books the next turn, and the other is refused because of it.
	if got := <-answers; got != "120" {
		t.Errorf("refused at once: Retry-After %s", got)
	}
	if status := s.Stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if got := <-answers; got != "60" {
		t.Errorf("refused in the end: Retry-After %s", got)
	}
}

func TestAWaitThatMakesNoSenseIsRefused(t *testing.T) {
	status, wrote := try.Attempt(&program{}, "-wait", "0s")
	if want := "example: rule 0 \"smooth\": OnLimit: the longest wait must be above 0 and at most 1h\n"; status != 2 || wrote != want {
		t.Errorf("%d %q", status, wrote)
	}
}
