package main

import (
	"testing"
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

func TestOverTheLimitTheQuoteComesFromTheCache(t *testing.T) {
	s := try.Start(t, &program{})
	expect(t, s.Get("/quote"), "quote 1", "-", "2")
	expect(t, s.Get("/quote"), "quote 2", "-", "1")
	expect(t, s.Get("/quote"), "quote 3", "-", "0")
	for range 10 {
		expect(t, s.Get("/quote"), "quote 3", "hit", "0")
	}
	s.Pass(time.Minute)
	expect(t, s.Get("/quote"), "quote 4", "-", "2")
}

func TestWithAnEmptyCacheTheQuoteIsFreshOverTheLimitToo(t *testing.T) {
	s := try.Start(t, &program{}, "-limit", "1/1m")
	s.Get("/page") // uses up the limit
	expect(t, s.Get("/quote"), "quote 1", "-", "0")
	expect(t, s.Get("/quote"), "quote 1", "hit", "0")
}

func TestOverTheLimitThePageIsCheap(t *testing.T) {
	s := try.Start(t, &program{}, "-limit", "1/1m")
	expect(t, s.Get("/page"), "the page, and what you may also like", "-", "0")
	expect(t, s.Get("/page"), "the page", "-", "0")
	s.Pass(time.Minute)
	expect(t, s.Get("/page"), "the page, and what you may also like", "-", "0")
}

func TestNobodyIsRefusedWhateverComesAtTheSameTime(t *testing.T) {
	s := try.Start(t, &program{})
	try.Same(t, "50 requests", s.Burst(50, try.Request{Path: "/quote"}), map[int]int{200: 50})
	s.Pass(time.Minute)
	expect(t, s.Get("/quote"), "quote 4", "-", "2") // three of the fifty were fresh
}
