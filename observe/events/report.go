package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
)

// Reporter is a [core.Store] that tells of itself. A limiter over a store that is none works,
// and knows nothing of it.
type Reporter interface {
	core.Store

	// Report returns what the store tells of itself. It asks no server.
	Report() Report
}

// Report is what a store tells of itself. Each function is nil, for a store that has nothing
// to say there, or safe for concurrent use. A store over others tells what they do too.
type Report struct {
	// MaxCall is the longest time that Apply waits for a server, 0 if it waits for none. A
	// limiter refuses a concurrency limit whose leases would end before such a store could
	// renew them.
	MaxCall time.Duration

	// Diagnose looks for mistakes in the set-up of the store, returns its findings, and stops
	// when ctx ends. rules has, for each rule in force, a Take with the rule's name and limit
	// and without a key. A limiter calls Diagnose in the background of the first request, and
	// then of one request a minute, because set-ups change. After a finding with the code
	// findings.Unanswered it calls Diagnose again after a second at the earliest, then two,
	// four and so on up to an hour.
	Diagnose func(ctx context.Context, rules []core.Op) []core.Finding

	// Bans returns the bans of the rules that have not ended, those that last longest first,
	// at most so many. It is a moment's view: keys are banned and lifted meanwhile. The error
	// of a store that cannot list bans wraps [errors.ErrUnsupported].
	Bans func(ctx context.Context, rules []string, most int) ([]core.Banned, error)

	// Listen has the store tell the hooks, which may be nil, from now on. Hooks that are
	// given a second time are not told twice; see [Listeners].
	Listen func(h *Hooks)

	// Status appends the status of the store to list, and that of each store under it. It
	// asks no server.
	Status func(list []StoreStatus) []StoreStatus
}

// ReportOf returns the report of a store, without a function that is nil. For a store that is
// no [Reporter], and for nil, each function does nothing. Bans then returns an error that
// wraps [errors.ErrUnsupported].
func ReportOf(s core.Store) Report {
	var r Report
	if from, ok := s.(Reporter); ok {
		r = from.Report()
	}

	// What a store leaves out does nothing, so that callers need not ask whether it is there.
	if r.Diagnose == nil {
		r.Diagnose = func(context.Context, []core.Op) []core.Finding { return nil }
	}
	if r.Bans == nil {
		r.Bans = func(context.Context, []string, int) ([]core.Banned, error) {
			return nil, fmt.Errorf("headgate: a %T cannot list bans: %w", s, errors.ErrUnsupported)
		}
	}
	if r.Listen == nil {
		r.Listen = func(*Hooks) {}
	}
	if r.Status == nil {
		r.Status = func(list []StoreStatus) []StoreStatus { return list }
	}
	return r
}
