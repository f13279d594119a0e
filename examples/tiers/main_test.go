package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/examples/internal/try"
)

// github is what GitHub sends with every answer.
var github = []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}

// end is an hour after what the clock of the store shows at first.
const end = 1767326400

func as(user string) try.Request {
	return try.Request{Header: map[string]string{"Authorization": "Bearer " + user + "-token"}}
}

func expect(t *testing.T, a try.Answer, status, limit, remaining, reset int) {
	t.Helper()
	if want := fmt.Sprint(limit, " ", remaining, " ", reset); a.Status != status || a.Show(github...) != want {
		t.Fatalf("%d %s, want %d %s", a.Status, a.Show(github...), status, want)
	}
}

func TestAnAddressWithoutAUserHasSixtyAnHour(t *testing.T) {
	s := try.Start(t, &program{})
	for i := range 60 {
		expect(t, s.Get("/"), 200, 60, 59-i, end)
	}
	s.Pass(59*time.Minute + 58500*time.Millisecond)
	a := s.Get("/")
	expect(t, a, 429, 60, 0, end)
	if a.Show("Retry-After") != "2" {
		t.Errorf("Retry-After: %s", a.Show("Retry-After"))
	}
	s.Pass(1500 * time.Millisecond)
	expect(t, s.Get("/"), 200, 60, 59, end+3600)
}

func TestAUserHasFiveThousandAnHour(t *testing.T) {
	s := try.Start(t, &program{})
	for i := range 5000 {
		expect(t, s.Ask(as("alice")), 200, 5000, 4999-i, end)
	}
	expect(t, s.Ask(as("alice")), 429, 5000, 0, end)
	expect(t, s.Ask(as("bob")), 200, 5000, 4999, end)
	expect(t, s.Get("/"), 200, 60, 59, end) // users cost their address nothing
}

func TestTheLimitOfUsersIsNotAboutStrangers(t *testing.T) {
	s := try.Start(t, &program{}, "-user", "1/1h fixed-window")
	expect(t, s.Get("/"), 200, 60, 59, end)
	expect(t, s.Get("/"), 200, 60, 58, end)
	expect(t, s.Ask(as("alice")), 200, 1, 0, end)
}

func TestATokenThatNobodyHasIsCountedByAddress(t *testing.T) {
	s := try.Start(t, &program{})
	for i := range 60 {
		expect(t, s.Ask(as(fmt.Sprint("guess", i))), 200, 60, 59-i, end)
	}
	expect(t, s.Ask(as("guess60")), 429, 60, 0, end)
	if a := s.Ask(as("alice")); a.Body != "hello alice" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestAddressesAreCountedApart(t *testing.T) {
	try.NeedAddress(t, "127.0.0.2")
	s := try.Start(t, &program{}, "-anonymous", "1/1h fixed-window")
	expect(t, s.Get("/"), 200, 1, 0, end)
	expect(t, s.Get("/"), 429, 1, 0, end)
	expect(t, s.Ask(try.Request{From: "127.0.0.2"}), 200, 1, 0, end)
}

func TestEveryAnswerHasTheHeaders(t *testing.T) {
	s := try.Start(t, &program{})
	expect(t, s.Get("/nowhere"), 404, 60, 59, end)
	expect(t, s.Ask(try.Request{Method: "HEAD", Path: "/"}), 404, 60, 58, end)
}
