package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/limiter"
)

// parseAction reads Policy.OnLimit.
func parseAction(s string) (limiter.Action, error) {
	switch s {
	case "", "reject":
		return limiter.Reject, nil
	case "degrade":
		return limiter.Degrade, nil
	}
	span, waits := strings.CutPrefix(s, "wait ")
	if !waits {
		return 0, fmt.Errorf(`%q is not "reject", "degrade" or "wait" and a duration, as in "wait 500ms"`, textform.Clip(s))
	}
	d, err := time.ParseDuration(span)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 500ms or 2s", textform.Clip(span))
	}
	if d <= 0 || d > core.MaxBooking {
		return 0, fmt.Errorf("the longest wait %s is not above 0 and at most %s", textform.Clip(span), core.MaxBooking)
	}
	return limiter.Wait(d), nil
}

// parseFailure reads Policy.OnStoreError.
func parseFailure(s string) (limiter.FailureMode, error) {
	switch s {
	case "":
		return limiter.FailDefault, nil
	case "open":
		return limiter.FailOpen, nil
	case "closed":
		return limiter.FailClosed, nil
	case "local":
		return limiter.FailLocal, nil
	}
	return 0, fmt.Errorf(`%q is not "open", "closed" or "local"`, textform.Clip(s))
}
