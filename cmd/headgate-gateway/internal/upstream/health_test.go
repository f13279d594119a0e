package upstream

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// told is a log that hands its lines on.
type told struct {
	slog.Handler
	lines chan string
}

func (l told) Enabled(context.Context, slog.Level) bool { return true }

func (l told) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	l.lines <- line
	return nil
}

// The test answers each question, so the numbers of answers are exact.
func TestAnswersInARowDecideWhoIsWell(t *testing.T) {
	answers := make(chan int)
	asked := make(chan string, 100)
	u := server(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Host + r.URL.Path
		status := <-answers
		w.Header().Set("Location", "/login")
		w.WriteHeader(status)
	})

	logger := told{slog.DiscardHandler, make(chan string, 10)}
	made, err := New([]Options{{Name: "up", Addresses: []*url.URL{u}, Host: "inside",
		Health: Health{Path: "/well", Interval: time.Millisecond, Timeout: time.Millisecond, Threshold: 2}}},
		slog.New(logger))
	if err != nil {
		t.Fatal(err)
	}

	p := made.pools[0]
	p.options.Health.Timeout = 10 * time.Second // the test may be slow
	made.Start(nil)

	answer := func(list ...int) {
		for _, status := range list {
			answers <- status
			<-asked
		}
	}

	// One wrong answer between right ones changes nothing. After the last of them the next question
	// has come, so all before are judged.
	answer(200, 500, 200, 404)
	if p.addresses[0].sick.Load() || len(logger.lines) != 0 {
		t.Error("one wrong answer was enough")
	}

	answer(302)
	if line := <-logger.lines; !strings.Contains(line, "not well") ||
		!strings.Contains(line, `redirects to "/login"`) || !p.addresses[0].sick.Load() {
		t.Errorf("told: %s", line)
	}

	// Two right answers bring it back.
	answer(204, 200)
	if line := <-logger.lines; !strings.Contains(line, "well again") || p.addresses[0].sick.Load() {
		t.Errorf("told: %s", line)
	}

	go func() { // the question that is under way
		for range answers {
		}
	}()
	close(answers)
	made.Close(nil)
	for len(asked) > 0 {
		if got := <-asked; got != "inside/well" {
			t.Errorf("asked for %s", got)
		}
	}
}
