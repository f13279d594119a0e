package main

import (
	"testing"
	"time"

	"github.com/headgate/headgate/examples/internal/try"
)

func report(user string) try.Request {
	return try.Request{Method: "POST", Path: "/reports", Header: map[string]string{"Authorization": "Bearer " + user + "-token"}}
}

// desk makes reports when the test says so.
type desk struct {
	begun  chan struct{}
	finish chan struct{}
}

func newDesk() *desk { return &desk{make(chan struct{}), make(chan struct{})} }

func (d *desk) work(time.Duration) {
	d.begun <- struct{}{}
	<-d.finish
}

// ask asks for a report, which it returns later, and waits until it is begun.
func (d *desk) ask(t *testing.T, s *try.Service, user string) <-chan try.Answer {
	t.Helper()
	answer := make(chan try.Answer, 1)
	go func() { answer <- s.Ask(report(user)) }()
	select {
	case <-d.begun:
	case a := <-answer:
		t.Fatalf("%s got %d instead of a report", user, a.Status)
	}
	return answer
}

func TestAUserHasTwoReportsMadeAtTheSameTime(t *testing.T) {
	d := newDesk()
	s := try.Start(t, &program{work: d.work})
	first, second := d.ask(t, s, "alice"), d.ask(t, s, "alice")
	a := s.Ask(report("alice"))
	// When somebody else's report is ready nobody knows, but a lease that
	// nobody renews would end in 30 seconds.
	if got := a.Show("RateLimit", "Retry-After"); a.Status != 429 || got != `"reports";r=0 30` {
		t.Errorf("the third at once: %d %s", a.Status, got)
	}
	others := d.ask(t, s, "bob")
	d.finish <- struct{}{}
	d.finish <- struct{}{}
	d.finish <- struct{}{}
	for _, a := range []try.Answer{<-first, <-second} {
		if a.Status != 200 || a.Body != "the report of alice" {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	if a := <-others; a.Status != 200 || a.Body != "the report of bob" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestAReportThatIsReadyMakesRoomForAnother(t *testing.T) {
	d := newDesk()
	s := try.Start(t, &program{work: d.work}, "-limit", "1 concurrent ttl=30s")
	for range 20 {
		ready := d.ask(t, s, "alice")
		if a := s.Ask(report("alice")); a.Status != 429 {
			t.Errorf("%d while another is made", a.Status)
		}
		d.finish <- struct{}{}
		if a := <-ready; a.Status != 200 {
			t.Errorf("%d", a.Status)
		}
	}
}

func TestAReportThatFailsMakesRoomToo(t *testing.T) {
	s := try.Start(t, &program{work: func(time.Duration) { panic("out of paper") }}, "-limit", "1 concurrent ttl=30s")
	for range 3 {
		if a := s.Ask(report("alice")); a.Status != 500 {
			t.Errorf("%d", a.Status)
		}
	}
}

func TestReportsInTheMakingAreAnsweredWhenTheProgramEnds(t *testing.T) {
	d := newDesk()
	s := try.Start(t, &program{work: d.work})
	ready := d.ask(t, s, "alice")
	s.Leave()
	d.finish <- struct{}{}
	if status := s.Stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if a := <-ready; a.Status != 200 {
		t.Errorf("%d", a.Status)
	}
}

func TestAProgramThatIsToldToEndBeforeItServesEnds(t *testing.T) {
	for range 20 {
		if status, wrote := try.Attempt(&program{}); status != 0 {
			t.Errorf("%d %q", status, wrote)
		}
	}
}

func TestStrangersGetNoReports(t *testing.T) {
	s := try.Start(t, &program{})
	if a := s.Ask(report("mallory")); a.Status != 401 || a.Show("RateLimit") != "-" {
		t.Errorf("%d %s", a.Status, a.Show("RateLimit"))
	}
}
