package limiter

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// Action says what happens to a request over the limit of a rule. Its zero
// value is [Reject]. Actions can be compared.
type Action struct {
	kind    actionKind
	maxWait time.Duration // of waits
}

type actionKind uint8

const (
	rejects actionKind = iota
	degrades
	shadows
	waits
)

var (
	// Reject refuses the request.
	Reject = Action{kind: rejects}
	// Degrade lets the request pass, marked; see [Degraded].
	Degrade = Action{kind: degrades}
	// Shadow counts and reports the request and lets it pass; no client sees it.
	Shadow = Action{kind: shadows}
)

// Wait makes the request wait for its turn, for at most max, which is above 0
// and at most [core.MaxBooking]. Requests of one key are served in the order of their
// arrival at the limiter, and one that leaves takes no units. A request is refused at once
// if its turn would come later than max, or after its context's deadline, as far as the
// limiter can know. A lease may be released at any time, so under a concurrency limit it
// waits for as long as it may.
func Wait(max time.Duration) Action { return Action{kind: waits, maxWait: max} }

// MaxWait returns the longest time that a request may wait: 0 unless a is made by [Wait].
func (a Action) MaxWait() time.Duration { return a.maxWait }

// String returns "reject", "degrade", "shadow", or "wait" and the longest wait.
func (a Action) String() string {
	switch a.kind {
	case degrades:
		return "degrade"
	case shadows:
		return "shadow"
	case waits:
		return "wait " + textform.Duration(a.maxWait)
	}
	return "reject"
}

// soft reports whether a request over the limit passes.
func (a Action) soft() bool { return a.kind == degrades || a.kind == shadows }

func (a Action) check() error {
	if a.kind == waits && (a.maxWait <= 0 || a.maxWait > core.MaxBooking) {
		return fmt.Errorf("OnLimit: the longest wait must be above 0 and at most %s", textform.Duration(core.MaxBooking))
	}
	return nil
}
