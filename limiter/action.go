package limiter

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// Action says what happens to a request over the limit of a rule. Its zero
// value is Reject.
type Action int64

const (
	// Reject refuses the request.
	Reject Action = 0
	// Degrade lets the request pass, marked; see [Degraded].
	Degrade Action = -1
	// Shadow counts and reports the request and lets it pass; no client sees it.
	Shadow Action = -2

	invalidWait Action = -3 // of Wait(0) and below, which is a mistake
)

// Wait makes the request wait for its turn, for at most max, which is above 0
// and at most [core.MaxBooking]. Requests of one key are served in the order of their
// arrival at the limiter, and one that leaves takes no units. A request is refused at once
// if its turn would come later than max, or after its context's deadline, as far as the
// limiter can know. A lease may be released at any time, so under a concurrency limit it
// waits for as long as it may.
func Wait(max time.Duration) Action {
	if max <= 0 {
		return invalidWait
	}
	return Action(max)
}

// MaxWait returns the longest time that a request may wait: 0 unless a is made by [Wait].
func (a Action) MaxWait() time.Duration { return max(0, time.Duration(a)) }

// String returns "reject", "degrade", "shadow", or "wait" and the longest wait.
func (a Action) String() string {
	switch {
	case a > 0:
		return "wait " + textform.Duration(time.Duration(a))
	case a == Reject:
		return "reject"
	case a == Degrade:
		return "degrade"
	case a == Shadow:
		return "shadow"
	}
	return fmt.Sprintf("action(%d)", int64(a))
}

// soft reports whether a request over the limit passes.
func (a Action) soft() bool { return a == Degrade || a == Shadow }

func (a Action) check() error {
	switch {
	case a == invalidWait || a > Action(core.MaxBooking):
		return fmt.Errorf("OnLimit: the longest wait must be above 0 and at most %s", textform.Duration(core.MaxBooking))
	case a < invalidWait:
		return fmt.Errorf("OnLimit: %s is not known", a)
	}
	return nil
}
