package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are pipes, so that a test controls the time.
type pipes struct {
	accept chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func newPipes() *pipes {
	ctx, cancel := context.WithCancel(context.Background())
	return &pipes{make(chan net.Conn), ctx, cancel}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.IPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accept <- server:
		return client, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

// start serves until the context ends, and returns a client and what serve returns.
func start(ctx context.Context) (*http.Client, <-chan error) {
	p := newPipes()
	done := make(chan error, 1)
	go func() { done <- serve(ctx, p) }()
	return &http.Client{Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}, done
}

// burst sends n requests at once and counts the answers by status, body and
// Retry-After. The body of a refusal is left out.
func burst(t *testing.T, client *http.Client, n int) map[string]int {
	// Answers of the same kind are one entry.
	var mu sync.Mutex
	var all sync.WaitGroup
	answers := map[string]int{}

	for range n {
		all.Go(func() {
			resp, err := client.Get("http://smooth/")
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)

			// A refusal is told by its header.
			if resp.StatusCode != 200 {
				body = nil
			}

			mu.Lock()
			defer mu.Unlock()
			answers[fmt.Sprintf("%d %s%s", resp.StatusCode, body, resp.Header.Get("Retry-After"))]++
		})
	}

	all.Wait()
	return answers
}

// served is the answer to a request that is served at the instant.
func served(at time.Time) string { return "200 " + at.Format("15:04:05.000\n") }

func stop(t *testing.T, end context.CancelFunc, done <-chan error) {
	t.Helper()
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestBurstComesThroughEvenlySpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		client, done := start(ctx)
		want := map[string]int{"429 3": 9} // the turn of the 22nd is 2.1 s away
		for i := range 21 {
			want[served(time.Now().Add(time.Duration(i)*100*time.Millisecond))] = 1
		}
		if got := burst(t, client, 30); !maps.Equal(got, want) {
			t.Errorf("got %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		stop(t, end, done)
	})
}

func TestWaitsHaveTheirTurnBeforeTheProgramEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		client, done := start(ctx)

		begun := time.Now()

		// The program is ended while the third request and those behind it still wait.
		time.AfterFunc(150*time.Millisecond, end)

		// Requests have a turn each 100 ms, the first at once.
		want := map[string]int{}
		for i := range 5 {
			want[served(begun.Add(time.Duration(i)*100*time.Millisecond))] = 1
		}

		// All five are answered all the same.
		got := burst(t, client, 5)
		if took := time.Since(begun); !maps.Equal(got, want) || took != 400*time.Millisecond {
			t.Errorf("%v after %v, want %v", got, took, want)
		}

		stop(t, end, done)
	})
}
