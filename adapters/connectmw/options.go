package connectmw

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

// Option configures the interceptor of [New]. New ignores an option that is nil, or that
// was given nil, and writes a line to the log of the limiter.
type Option func(*options)

type options struct {
	skip            func(*Call) bool
	refused, failed func(*Call, *limiter.Admission) error
	messages        *limiter.Limiter
	probes          bool
	faults          []error
}

// newOptions applies the options. It writes one line to the log if some are nil or
// if the limiter cannot decide about requests.
func newOptions(l *limiter.Limiter, list []Option) options {
	o := options{faults: []error{l.CheckRequests()}}
	for i, set := range list {
		if set == nil {
			o.faults = append(o.faults, fmt.Errorf("option %d is nil and ignored", i))
			continue
		}
		set(&o)
	}
	if o.messages != nil && o.messages != l {
		o.faults = append(o.faults, o.messages.CheckRequests())
	}
	l.LogSetup("connectmw.New", errors.Join(o.faults...))
	return o
}

// ignore notes that the named option was given nil.
func (o *options) ignore(name string) {
	o.faults = append(o.faults, fmt.Errorf("%s was given nil and is ignored", name))
}

// WithSkip makes the interceptor ignore calls for which skip returns true. They reach the
// handlers uncounted.
// A call for which skip panics is counted, and the panic is an error for OnError.
func WithSkip(skip func(*Call) bool) Option {
	return func(o *options) {
		if skip == nil {
			o.ignore("WithSkip")
			return
		}
		o.skip = skip
	}
}

// WithProbes makes the interceptor count calls of the health and reflection services
// (grpc.health.v1.Health and grpc.reflection) like any other. Without it they pass
// uncounted, so that a load balancer is not refused. Any client can call them then: where
// the server can be reached from outside, limit them too or do not register them there.
func WithProbes() Option { return func(o *options) { o.probes = true } }

// WithRefused calls answer for refused calls. They end with the error that it returns,
// which should be a [*connect.Error], or if that is nil, with that of the limiter. The
// headers of the limiter are set in both cases. answer must not keep the admission.
//
// The templates of the limiter, such as Config.Refused, make HTTP answers. A call that is
// refused without an error of answer has them called too, for their delays (see
// [limiter.Tarpit]), but not sent.
func WithRefused(answer func(*Call, *limiter.Admission) error) Option {
	return func(o *options) {
		if answer == nil {
			o.ignore("WithRefused")
			return
		}
		o.refused = answer
	}
}

// WithFailed is like [WithRefused], for calls that end with unavailable because the store
// could not decide and the limiter fails closed, or because too many requests wait
// already; see [limiter.Admission.Outcome].
func WithFailed(answer func(*Call, *limiter.Admission) error) Option {
	return func(o *options) {
		if answer == nil {
			o.ignore("WithFailed")
			return
		}
		o.failed = answer
	}
}

// WithMessages asks l about every message that a client streams, in addition to the limits
// of the stream itself. [Message] returns the message to the functions of its rules.
// Receiving a message that is refused fails with resource_exhausted, and so does the stream
// if its handler returns that error. A rule whose action is Wait makes the handler wait,
// and HTTP/2 then stops the client from sending. A message is over once it is received, so
// that leases, RefundIf and the result in the context have no use in l.
func WithMessages(l *limiter.Limiter) Option {
	return func(o *options) {
		if l == nil {
			o.ignore("WithMessages")
			return
		}
		o.messages = l
	}
}

// RefundIf returns a function for Rule.RefundIf that asks f about the code with which a
// call ended, which is 0 for a call that ended well or with [connect.NewNotModifiedError].
// A panic is [connect.CodeInternal], and an error without a code [connect.CodeUnknown]. In
// an HTTP server f is asked about the code that has the status of the answer.
//
// A rule that is not made by RefundIf gets an HTTP status for each code: that of
// google/rpc/code.proto, except 412 for failed_precondition, 416 for out_of_range, 423 for
// aborted, 507 for data_loss and 520 for unknown.
func RefundIf(f func(connect.Code) bool) func(status int) bool {
	return func(status int) bool { return f(connect.Code(rpc.CodeOf(status))) }
}
