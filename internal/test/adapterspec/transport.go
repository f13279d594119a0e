package adapterspec

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// A transport is how a client and a server talk. The promises that hold for HTTP and for calls
// ask it for all that differs.
type transport interface {
	// start starts a server for the app, and ends the one before, if any, with the test.
	start(a app)

	// ask sends a request with fields, which are lines as of a header, and reads the answer.
	// Without fields they are "". An error of the connection is an answer of no kind.
	ask(ctx context.Context, fields string) Answer

	// forms returns the ways to send a request. The first is that of ask.
	forms() []form

	// openEndless starts a server with the limiter whose handler, if it is asked for a stream,
	// sends until sending fails and then calls end, unless end is nil. It opens such a stream,
	// and returns when some of it has arrived, with a function that leaves it.
	openEndless(l *limiter.Limiter, end func(context.Context)) (leave func())

	passed(text string) Answer                           // a handler's text
	refusal(rule string, after time.Duration) Answer     // to a client that may ask again after that
	abnormal(rule string, after time.Duration) Answer    // to a client that is banned for so long
	denial(rule string, status int) Answer               // by a rule with that DenyStatus
	failure(after time.Duration) Answer                  // if the store could not decide
	queueFull(rule string, status int) Answer            // by a limiter with that QueueFullStatus
	own(o ownAnswer, text string) Answer                 // by a function of the program
	onError() Answer                                     // if a handler returns the error "boom"
	onPanic() Answer                                     // if a handler panics with "boom"
	comeAgain(after time.Duration) (h map[string]string) // the headers of each refusal

	// endings returns handlers that end in all ways which settle a request, and failures five
	// that fail.
	endings() []ending
	failures() []ending

	// refundIf returns the RefundIf of a rule that refunds an answer of the kind.
	refundIf(o outcome) func(status int) bool

	pkg() string             // the name of the adapter's package
	userKey() core.KeyFunc   // of the field X-User, for requests without X-Exempt
	noRequest() core.Request // the adapter's view of no request
	forged() []string        // fields by which clients pretend to be others
	blindToLeaving() bool    // whether the framework notices late that a client has left
}

// An opener returns a transport for one test.
type opener func(t *testing.T) transport

// A form is a way to send a request.
type form struct {
	name string

	// as returns the answer in this form, given that of the first form.
	as func(Answer) Answer

	// ask sends a request in this form.
	ask func(fields string) Answer

	// ownErrors reports whether as also holds for the framework's answers to errors and panics.
	ownErrors bool
}

// An app is a server in terms that every transport has. It recovers from panics, outside of the
// limiters.
type app struct {
	limiter *limiter.Limiter

	// around holds limiters around limiter, the outermost first, each with its Config.
	around []app

	handler handler // nil answers "ok"

	// skip has the Config skip requests by the field X-Skip, as [Skips] says.
	skip bool

	// refused and failed are the fields of that name in the Config.
	refused, failed func(turn, *limiter.Admission) error

	// secondConfig gives New a second Config, which skips every request.
	secondConfig bool

	// recovered, unless nil, is called with the value of each panic.
	recovered func(value any)
}

// A handler answers a request.
type handler func(turn) error

// A turn is a request and its answer, as a handler sees them.
type turn interface {
	Context() context.Context

	// Request is the adapter's view of the request.
	Request() core.Request

	// say answers with the text.
	say(text string) error

	// answer answers as the program does in place of the limiter.
	answer(o ownAnswer, text string) error
}

// An ownAnswer is one of two answers by which the program's own functions are told apart.
type ownAnswer int

const (
	ownRefused ownAnswer = iota
	ownFailed
)

// An outcome is how a handler answers.
type outcome int

const (
	success  outcome = iota
	panicked         // as rules see it
)

// An ending is a way in which a handler ends, with the answer to it.
type ending struct {
	name    string
	handler handler
	want    Answer
}

// byReturn, byError and byPanic end in the ways that every transport has.
func byReturn(t transport) ending { return ending{"a return", ok, t.passed("ok")} }

func byError(t transport) ending { return ending{"an error", fail, t.onError()} }

func byPanic(t transport) ending {
	return ending{"a panic", func(turn) error { panic("boom") }, t.onPanic()}
}

// Skips is the function of the program that an adapter skips requests by. It panics if
// the field says so.
func Skips(field string) bool {
	if field == "panic" {
		panic("skip")
	}
	return field != ""
}
