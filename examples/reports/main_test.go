package main

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/headgate/headgate/examples/internal/try"
)

// start serves the reports until the test ends, and returns a handler that passes
// requests on to them.
func start(t *testing.T, work func()) http.Handler {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	app := newApp(work)
	done := make(chan error, 1)
	go func() { done <- app.Listener(listener) }()

	transport := &http.Transport{}

	// Open connections would hold up the end.
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := app.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: listener.Addr().String()})
	proxy.Transport = transport
	return proxy
}

func report(user string) try.Request {
	return try.Request{Method: "POST", Path: "/reports", Header: map[string]string{"X-Token": user + "-token"}}
}

// worker makes reports and ends each when the test says so.
type worker struct{ begun, finish chan struct{} }

func newWorker() *worker { return &worker{make(chan struct{}), make(chan struct{})} }

func (w *worker) work() {
	w.begun <- struct{}{}
	<-w.finish
}

// ask sends a request for a report and waits until the report is begun. The answer
// follows in the channel.
func (w *worker) ask(t *testing.T, h http.Handler, user string) <-chan try.Answer {
	t.Helper()
	answer := make(chan try.Answer, 1)
	go func() { answer <- try.Ask(h, report(user)) }()
	select {
	case <-w.begun:
	case a := <-answer:
		t.Fatalf("%s got %d instead of a report", user, a.Status)
	}
	return answer
}

func TestReportsTwoAtATime(t *testing.T) {
	w := newWorker()
	h := start(t, w.work)

	// Two are made when the third is asked for.
	first, second := w.ask(t, h, "alice"), w.ask(t, h, "alice")
	// The limiter cannot know when a report will be ready, but a lease that is
	// not renewed would end in 30 seconds.
	a := try.Ask(h, report("alice"))
	if got := a.Show("RateLimit", "Retry-After"); a.Status != 429 || got != `"reports";r=0 30` {
		t.Errorf("the third at once: %d %s", a.Status, got)
	}

	// Another client has two of its own.
	others := w.ask(t, h, "bob")
	for range 3 {
		w.finish <- struct{}{}
	}

	for _, a := range []try.Answer{<-first, <-second} {
		if a.Status != 200 || a.Body != "the report of alice" {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}

	if a := <-others; a.Status != 200 || a.Body != "the report of bob" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestReportThatIsReadyMakesRoom(t *testing.T) {
	w := newWorker()
	h := start(t, w.work)

	// One report is made all the time, so that the others have one place between them.
	long := w.ask(t, h, "alice")
	for range 20 {
		ready := w.ask(t, h, "alice")
		if a := try.Ask(h, report("alice")); a.Status != 429 {
			t.Errorf("%d while two others are made", a.Status)
		}

		w.finish <- struct{}{}

		// The worker finishes either of the two.
		select {
		case a := <-ready:
			if a.Status != 200 {
				t.Errorf("%d", a.Status)
			}
		case a := <-long: // was the one to finish
			if a.Status != 200 {
				t.Errorf("%d", a.Status)
			}
			long = ready
		}
	}

	// The last one.
	w.finish <- struct{}{}
	if a := <-long; a.Status != 200 {
		t.Errorf("%d", a.Status)
	}
}

func TestReportThatFailsMakesRoom(t *testing.T) {
	h := start(t, func() { panic("out of paper") })
	for range 5 {
		if a := try.Ask(h, report("alice")); a.Status != 500 {
			t.Errorf("%d", a.Status)
		}
	}
}

func TestReportsAreForUsersOnly(t *testing.T) {
	h := start(t, func() {})
	if a := try.Ask(h, report("mallory")); a.Status != 401 || a.Show("RateLimit") != "-" {
		t.Errorf("%d %s", a.Status, a.Show("RateLimit"))
	}
}
