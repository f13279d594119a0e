package transport

import (
	"context"
	"errors"
	"time"
)

// Observer receives what became of requests, for metrics and logs. It is called in the
// goroutine of the request, or in that which closes the body, and must be quick and safe for
// concurrent use.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Event is one attempt to send a request. It holds nothing that the server sent but its status.
type Event struct {
	// Key is what [Config.Key] has returned for the request.
	Key string

	Outcome Outcome

	// Status is that of the answer, and 0 if there is none.
	Status int

	// Try is 0 for the first attempt of a request.
	Try int

	// Waited is how long this attempt waited before the request was sent or given up.
	Waited time.Duration

	// RetryAfter is, for Refused, how long no request of the key is sent, and for Limited that
	// of the error.
	RetryAfter time.Duration

	// Err is why there is no answer.
	Err error
}

// Outcome is what became of an attempt.
type Outcome uint8

const (
	Answered  Outcome = iota // the server has answered
	Refused                  // the server has answered that the request is over a limit
	Limited                  // the request was not sent; see LimitedError
	Failed                   // Base returned an error
	Canceled                 // the context ended before the request was sent
	Unsettled                // the costs of an answered request could not be corrected
)

// String returns the outcome in lower case.
func (o Outcome) String() string {
	switch o {
	case Answered:
		return "answered"
	case Refused:
		return "refused"
	case Limited:
		return "limited"
	case Failed:
		return "failed"
	case Canceled:
		return "canceled"
	case Unsettled:
		return "unsettled"
	}
	return "unknown outcome"
}

// notSent returns the outcome of an attempt that ended with err before it was sent.
func notSent(err error) Outcome {
	var limited *LimitedError
	if errors.As(err, &limited) {
		return Limited
	}
	return Canceled
}

// observe hands an event to the observer, with the key and the attempt that it is of.
func (e *exchange) observe(event Event) {
	if e.t.observer == nil {
		return
	}
	event.Key, event.Try = e.key, e.try
	e.t.observer.Observe(e.req.Context(), event)
}
