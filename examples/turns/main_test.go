package main

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/examples/internal/try"
)

// answered sends n requests at once, and counts the answers by status and instant.
func answered(h http.Handler, n int) map[[2]int]int {
	// All are sent at one instant of the bubble, so that the answers' instants are exact.
	var mu sync.Mutex
	var all sync.WaitGroup
	begun, answers := time.Now(), map[[2]int]int{}

	for range n {
		all.Go(func() {
			a := try.Get(h, "/")

			mu.Lock()
			defer mu.Unlock()
			answers[[2]int{a.Status, int(time.Since(begun) / time.Millisecond)}]++
		})
	}

	all.Wait()
	return answers
}

func TestPicturesOneAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := map[[2]int]int{{503, 0}: 9}
		for i := range 11 {
			want[[2]int{200, 1000 * (i + 1)}] = 1
		}
		if got := answered(newHandler(), 20); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

func TestFullLineIsNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler()
		var all sync.WaitGroup
		all.Go(func() { answered(h, 11) })
		synctest.Wait()
		a := try.Get(h, "/")
		if got := a.Show("Retry-After", "RateLimit", "Content-Type"); a.Status != 503 ||
			got != "1 - application/problem+json" {
			t.Errorf("%d %s", a.Status, got)
		}
		all.Wait()
	})
}

// A client that leaves makes room in the line, and does not hold up the others.
func TestClientThatLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// One is drawn for a second, and the next one in the line leaves before its turn.
		h := newHandler()
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup

		all.Go(func() { try.Get(h, "/") })
		synctest.Wait()

		all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil)) })
		synctest.Wait()

		time.AfterFunc(500*time.Millisecond, leave)

		// The third is drawn right after the first, and not after the second's turn.
		want := map[[2]int]int{{200, 2000}: 1} // not 3000
		if got := answered(h, 1); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}

		all.Wait()
	})
}
