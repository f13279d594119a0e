package main

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/examples/internal/try"
)

// github is what GitHub sends with every answer.
var github = []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}

// end is an hour after the instant at which synctest begins.
const end = 946688400

func as(user string) try.Request {
	return try.Request{Header: map[string]string{"Authorization": "Bearer " + user + "-token"}}
}

func expect(t *testing.T, a try.Answer, status, limit, remaining, reset int) {
	t.Helper()
	if want := fmt.Sprint(limit, " ", remaining, " ", reset); a.Status != status || a.Show(github...) != want {
		t.Fatalf("%d %s, want %d %s", a.Status, a.Show(github...), status, want)
	}
}

func TestAnonymousAddressHasSixtyAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler()

		// All sixty may come within one instant.
		for i := range 60 {
			expect(t, try.Get(h, "/"), 200, 60, 59-i, end)
		}

		// One and a half seconds before the hour's end the wait is rounded up.
		time.Sleep(59*time.Minute + 58500*time.Millisecond)

		a := try.Get(h, "/")
		expect(t, a, 429, 60, 0, end)
		if a.Show("Retry-After") != "2" {
			t.Errorf("Retry-After: %s", a.Show("Retry-After"))
		}

		// Another address has sixty of its own, and an hour that begins with its first request.
		expect(t, try.Ask(h, try.Request{From: "192.0.2.2"}), 200, 60, 59, end+3599)

		time.Sleep(1500 * time.Millisecond)

		// The hour of the first has ended.
		expect(t, try.Get(h, "/"), 200, 60, 59, end+3600)
	})
}

func TestUserHasFiveThousandAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler()
		for i := range 5000 {
			expect(t, try.Ask(h, as("alice")), 200, 5000, 4999-i, end)
		}
		expect(t, try.Ask(h, as("alice")), 429, 5000, 0, end)
		expect(t, try.Ask(h, as("bob")), 200, 5000, 4999, end)
		expect(t, try.Get(h, "/"), 200, 60, 59, end) // users cost their address nothing
	})
}

func TestUnknownTokensCountByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler()
		for i := range 60 {
			expect(t, try.Ask(h, as(fmt.Sprint("guess", i))), 200, 60, 59-i, end)
		}
		expect(t, try.Ask(h, as("guess60")), 429, 60, 0, end)
		if a := try.Ask(h, as("alice")); a.Status != 200 || a.Body != "hello alice" {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	})
}

func TestEveryAnswerHasTheHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler()
		expect(t, try.Get(h, "/nowhere"), 404, 60, 59, end)
		expect(t, try.Ask(h, try.Request{Method: "HEAD"}), 404, 60, 58, end)
	})
}
