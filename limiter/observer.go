package limiter

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// Observer receives decisions, for metrics and logs. It is called in the goroutine
// of the request and must be quick and safe for concurrent use.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Event is the decision of one rule about one request, or the error that prevented
// it. It never holds a key or anything else that a client sent.
type Event struct {
	// Rule is the rule's name, and "" if Err is about no single rule.
	Rule string

	// OnLimit is the action of the rule for a Decision that is not Allowed.
	OnLimit Action

	// Decision is of the store or, if its Fallback is true, of the fallback. If it is
	// Banned, the rule refused the request because of a ban.
	Decision core.Decision

	// Denied means that Rule.Access of the rule denies the caller, so the store was not
	// asked.
	Denied bool

	// Outcome is that of the whole request.
	Outcome Outcome

	// Waited is how long the request waited for its turn.
	Waited time.Duration

	// Err, unless nil, is why the store could not decide. Decision is then zero.
	Err error
}

// PanicError is a panic of a function that the program gave to the limiter, or
// of its store.
type PanicError struct {
	Value any
	Stack []byte
}

// Error is one line, whatever the panic's value is.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %q", textform.Clip(fmt.Sprint(e.Value)))
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

func panicked(value any) error { return &PanicError{value, debug.Stack()} }
