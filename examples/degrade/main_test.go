package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/examples/internal/try"
)

func expect(t *testing.T, a try.Answer, body, cache, remaining string) {
	t.Helper()
	want := cache + " " + remaining
	if got := a.Show("X-Cache", "X-RateLimit-Remaining"); a.Status != 200 || a.Body != body || got != want {
		t.Errorf("%d %q %s, want 200 %q %s", a.Status, a.Body, got, body, want)
	}
}

func TestQuoteComesFromTheCacheOverTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler()
		expect(t, try.Get(h, "/quote"), "quote 1", "-", "2")
		expect(t, try.Get(h, "/quote"), "quote 2", "-", "1")
		expect(t, try.Get(h, "/quote"), "quote 3", "-", "0")
		for range 10 {
			expect(t, try.Get(h, "/quote"), "quote 3", "hit", "0")
		}
		time.Sleep(time.Minute)
		expect(t, try.Get(h, "/quote"), "quote 4", "-", "2")
	})
}

func TestQuoteIsFreshWhileTheCacheIsEmpty(t *testing.T) {
	h := handler()
	for range 3 {
		try.Get(h, "/page") // uses up the limit
	}
	expect(t, try.Get(h, "/quote"), "quote 1", "-", "0")
	expect(t, try.Get(h, "/quote"), "quote 1", "hit", "0")
}

func TestPageIsCheapOverTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler()
		for _, left := range []string{"2", "1", "0"} {
			expect(t, try.Get(h, "/page"), "the page\nand what you may also like", "-", left)
		}
		expect(t, try.Get(h, "/page"), "the page", "-", "0")
		time.Sleep(time.Minute)
		expect(t, try.Get(h, "/page"), "the page\nand what you may also like", "-", "2")
	})
}

func TestQuoteRefusesNoneOfFiftyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler()
		expect(t, try.Get(h, "/quote"), "quote 1", "-", "2")
		try.Same(t, "50 requests", try.Burst(h, 50, try.Request{Path: "/quote"}), map[int]int{200: 50})
		time.Sleep(time.Minute)
		expect(t, try.Get(h, "/quote"), "quote 4", "-", "2") // two of the fifty were fresh
	})
}
