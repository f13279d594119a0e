package main

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/headgate/headgate/examples/internal/try"
)

func guess(account, password string) try.Request {
	return try.Request{Path: "/login", Form: url.Values{"account": {account}, "password": {password}}}
}

func expect(t *testing.T, s *try.Service, r try.Request, status int) try.Answer {
	t.Helper()
	a := s.Ask(r)
	if a.Status != status {
		t.Fatalf("%v: %d %s, want %d", r.Form, a.Status, a.Body, status)
	}
	return a
}

func TestAnAccountHasFiveWrongPasswordsInAnyQuarterOfAnHour(t *testing.T) {
	s := try.Start(t, &program{})
	for i := range 5 {
		expect(t, s, guess("alice", fmt.Sprint("wrong", i)), 401)
		s.Pass(time.Minute)
	}
	a := expect(t, s, guess("alice", "rabbit"), 429)
	if a.Show("Retry-After") != "600" {
		t.Errorf("Retry-After: %s", a.Show("Retry-After"))
	}
	expect(t, s, guess("bob", "rabbit"), 200)
	s.Pass(10 * time.Minute)
	expect(t, s, guess("alice", "rabbit"), 200)
	expect(t, s, guess("alice", "wrong"), 401)
	expect(t, s, guess("alice", "wrong"), 429)
}

func TestAnAddressHasTwentyWrongPasswordsOverAllAccounts(t *testing.T) {
	try.NeedAddress(t, "127.0.0.2")
	s := try.Start(t, &program{})
	for i := range 20 {
		expect(t, s, guess(fmt.Sprint("user", i), "123456"), 401)
	}
	expect(t, s, guess("bob", "rabbit"), 429)
	elsewhere := guess("bob", "rabbit")
	elsewhere.From = "127.0.0.2"
	expect(t, s, elsewhere, 200)
}

func TestLogInsThatSucceedCostNothing(t *testing.T) {
	s := try.Start(t, &program{})
	for range 4 {
		expect(t, s, guess("alice", "wrong"), 401)
	}
	for range 100 {
		expect(t, s, guess("alice", "rabbit"), 200)
	}
	// Nor do they make up for those that failed.
	expect(t, s, guess("alice", "wrong"), 401)
	expect(t, s, guess("alice", "wrong"), 429)
}

func TestGuessesAtTheSameTimeAreHeldToTheLimit(t *testing.T) {
	s := try.Start(t, &program{})
	try.Same(t, "100 wrong passwords", s.Burst(100, guess("alice", "wrong")), map[int]int{401: 5, 429: 95})
	expect(t, s, guess("alice", "rabbit"), 429)
}

func TestASpellingOfAnAccountIsNoWayAroundItsLimit(t *testing.T) {
	s := try.Start(t, &program{})
	for _, spelling := range []string{"alice", "Alice", " ALICE", "alice\t", "aLiCe"} {
		expect(t, s, guess(spelling, "wrong"), 401)
	}
	expect(t, s, guess("alicE ", "rabbit"), 429)
}

func TestWhatCannotBeANameIsRefusedUncounted(t *testing.T) {
	s := try.Start(t, &program{})
	for range 25 {
		expect(t, s, guess("", "rabbit"), 400)
		expect(t, s, guess(fmt.Sprintf("%065d", 1), "rabbit"), 400)
	}
	expect(t, s, guess("alice", "rabbit"), 200)
}
