package main

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/examples/internal/try"
)

func guess(account, password string) try.Request {
	return try.Request{Path: "/login", Form: url.Values{"account": {account}, "password": {password}}}
}

func expect(t *testing.T, h http.Handler, r try.Request, status int) try.Answer {
	t.Helper()
	a := try.Ask(h, r)
	if a.Status != status {
		t.Fatalf("%v: %d %s, want %d", r.Form, a.Status, a.Body, status)
	}
	return a
}

func TestAccountHasFiveFailuresInAnyQuarterOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler()

		// Five failures in five minutes: the first is ten minutes from coming back.
		for i := range 5 {
			expect(t, h, guess("alice", fmt.Sprint("wrong", i)), 401)
			time.Sleep(time.Minute)
		}

		// The right password is refused like any other, and nothing says that it is right.
		if a := expect(t, h, guess("alice", "rabbit"), 429); a.Show("Retry-After") != "600" {
			t.Errorf("Retry-After: %s", a.Show("Retry-After"))
		}

		// Another account from the same address has a count of its own.
		expect(t, h, guess("bob", "rabbit"), 200)

		time.Sleep(10 * time.Minute)

		// A success gives its unit back, so one guess is still free.
		expect(t, h, guess("alice", "rabbit"), 200)
		expect(t, h, guess("alice", "wrong"), 401)
		expect(t, h, guess("alice", "wrong"), 429)
	})
}

func TestAddressHasTwentyFailuresOverAllAccounts(t *testing.T) {
	h := handler()
	for i := range 20 {
		expect(t, h, guess(fmt.Sprint("user", i), "rabbit"), 401) // no such account
	}
	expect(t, h, guess("bob", "rabbit"), 429)
	elsewhere := guess("bob", "rabbit")
	elsewhere.From = "192.0.2.2"
	expect(t, h, elsewhere, 200)
}

func TestAddressThatGoesOnIsBanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler()

		// Each account is guessed once: only the address can count this.
		for i := range 20 {
			expect(t, h, guess(fmt.Sprint("user", i), "rabbit"), 401)
		}

		// Refusals before the 20th name the wait of the limit, a quarter of an hour.
		for range 19 {
			if a := expect(t, h, guess("bob", "rabbit"), 429); a.Show("Retry-After") != "900" {
				t.Fatalf("Retry-After: %s", a.Show("Retry-After"))
			}
		}

		// The 20th is the start of an hour's ban.
		if a := expect(t, h, guess("bob", "rabbit"), 429); a.Show("Retry-After") != "3600" {
			t.Errorf("Retry-After: %s", a.Show("Retry-After"))
		}

		// The ban ends to the microsecond.
		time.Sleep(time.Hour - time.Microsecond)
		expect(t, h, guess("bob", "rabbit"), 429)
		time.Sleep(time.Microsecond)
		expect(t, h, guess("bob", "rabbit"), 200)
	})
}

func TestSuccessCostsNothing(t *testing.T) {
	h := handler()
	for range 4 {
		expect(t, h, guess("alice", "wrong"), 401)
	}
	for range 100 {
		expect(t, h, guess("alice", "rabbit"), 200)
	}
	// Nor do they make up for those that failed.
	expect(t, h, guess("alice", "wrong"), 401)
	expect(t, h, guess("alice", "wrong"), 429)
}

func TestSimultaneousGuessesAreHeldToTheLimit(t *testing.T) {
	h := handler()
	try.Same(t, "100 wrong passwords", try.Burst(h, 100, guess("alice", "wrong")), map[int]int{401: 5, 429: 95})
	expect(t, h, guess("alice", "rabbit"), 429)
}

func TestSpellingsOfAnAccountShareItsLimit(t *testing.T) {
	h := handler()
	for _, spelling := range []string{"alice", "Alice", " ALICE", "alice\t", "aLiCe"} {
		expect(t, h, guess(spelling, "wrong"), 401)
	}
	expect(t, h, guess("alicE ", "rabbit"), 429)
}

func TestInvalidNamesAreRefusedUncounted(t *testing.T) {
	h := handler()
	for range 25 {
		expect(t, h, guess("", "rabbit"), 400)
		expect(t, h, guess(fmt.Sprintf("%065d", 1), "rabbit"), 400)
	}
	expect(t, h, guess("alice", "rabbit"), 200)
}
