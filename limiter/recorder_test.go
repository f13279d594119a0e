package limiter_test

import (
	"context"
	"sync"

	"github.com/headgate/headgate/observe/events"
)

// recorder is an Observer that keeps what it gets.
type recorder struct {
	mu   sync.Mutex
	list []events.Request
}

func (r *recorder) Observe(_ context.Context, e *events.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := *e
	kept.Rules = append([]events.Rule{}, e.Rules...)
	r.list = append(r.list, kept)
}

// take returns the requests since the last call.
func (r *recorder) take() []events.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}

// verdicts returns a line for each request since the last call.
func (r *recorder) verdicts() (lines []string) {
	for _, e := range r.take() {
		lines = append(lines, verdicts(e))
	}
	return lines
}

// verdicts returns the verdict on a request, and that of each rule.
func verdicts(e events.Request) string {
	text, mark := e.Verdict.String(), ": "
	for _, r := range e.Rules {
		text += mark + r.Name + " " + r.Verdict.String()
		mark = ", "
	}
	return text
}
