package limiter

import (
	"fmt"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"time"
)

// Overflow says what happens to a request over the limit of a rule. Its zero
// value is Reject.
type Overflow int64

const (
	// Reject refuses the request.
	Reject Overflow = 0
	// Degrade lets the request pass, marked; see [Degraded].
	Degrade Overflow = -1
	// Shadow counts and reports and lets the request pass; no client sees it.
	Shadow Overflow = -2

	noSpan Overflow = -3 // Wait(0) and below, which is a mistake
)

// Wait makes the request wait for its turn, for at most max, which is above 0
// and at most [core.MaxBooking]. It is refused at once if its turn would come later
// than that, or after its context's deadline.
func Wait(max time.Duration) Overflow {
	if max <= 0 {
		return noSpan
	}
	return Overflow(max)
}

// MaxWait is the longest that a request may wait: 0 unless o comes from [Wait].
func (o Overflow) MaxWait() time.Duration { return max(0, time.Duration(o)) }

// String returns "reject", "degrade", "shadow", or "wait" and the longest wait.
func (o Overflow) String() string {
	switch {
	case o > 0:
		return "wait " + textform.Duration(time.Duration(o))
	case o == Reject:
		return "reject"
	case o == Degrade:
		return "degrade"
	case o == Shadow:
		return "shadow"
	}
	return fmt.Sprintf("overflow(%d)", int64(o))
}

// soft tells that being over the limit does not stop the request.
func (o Overflow) soft() bool { return o == Degrade || o == Shadow }

func (o Overflow) check() error {
	switch {
	case o == noSpan || o > Overflow(core.MaxBooking):
		return fmt.Errorf("OnLimit: the longest wait must be above 0 and at most %s", textform.Duration(core.MaxBooking))
	case o < noSpan:
		return fmt.Errorf("OnLimit: %s is not known", o)
	}
	return nil
}
