package core

import (
	"context"
	"time"
)

// Reporter is a [Store] that also knows how long its calls may take, what is wrong with its
// set-up, and which keys are banned. A store over others reports what they do. The methods are safe for concurrent use.
type Reporter interface {
	Store

	// MaxCall returns the longest time that Apply waits for a server, 0 if it waits for none.
	// It always returns the same. A limiter refuses a concurrency limit whose leases would end
	// before such a store could renew them.
	MaxCall() time.Duration

	// Diagnose looks for mistakes in the set-up of the store, returns its findings, and stops
	// when ctx ends. rules has, for each rule in force, a Take with the rule's name and limit
	// and without a key. A limiter calls Diagnose in the background of the first request, and
	// then of one request a minute, because set-ups change. After a finding with the code
	// findings.Unanswered it calls Diagnose again after a second at the earliest, then two,
	// four and so on up to an hour.
	Diagnose(ctx context.Context, rules []Op) []Finding

	// Bans returns the bans of the rules that have not ended, those that last longest first,
	// at most so many. It is a moment's view: keys are banned and lifted meanwhile. The error
	// of a store that cannot list bans wraps [errors.ErrUnsupported].
	Bans(ctx context.Context, rules []string, most int) ([]Banned, error)
}
