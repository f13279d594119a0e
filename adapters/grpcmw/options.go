package grpcmw

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

// Option configures the interceptors of [New]. New ignores an option that is nil, or that
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
	l.LogSetup("grpcmw.New", errors.Join(o.faults...))
	return o
}

// ignore notes that the named option was given nil.
func (o *options) ignore(name string) {
	o.faults = append(o.faults, fmt.Errorf("%s was given nil and is ignored", name))
}

// WithSkip makes the interceptors ignore calls for which skip returns true. They reach the
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

// WithProbes makes the interceptors count calls of the health and reflection services
// (grpc.health.v1.Health and grpc.reflection) like any other. Without it they pass
// uncounted, so that a load balancer is not refused. Any client can call them then: where
// the server can be reached from outside, limit them too or do not register them there.
func WithProbes() Option { return func(o *options) { o.probes = true } }

// WithRefused calls answer for refused calls. They end with the error that it returns,
// which should be one of package status, or if that is nil, with that of the limiter.
// The metadata of the limiter is sent in both cases. answer must not keep the admission.
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

// WithFailed is like [WithRefused], for calls that end with Unavailable because the store
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
// Receiving a message that is refused fails with ResourceExhausted, and so does the stream
// if its handler returns that error. A rule whose action is Wait makes the handler wait,
// and gRPC then stops the client from sending. A message is over once it is received, so
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
// call ended. A panic is [codes.Internal], and an error without a code [codes.Unknown]. In
// an HTTP server f is asked about the code that has the status of the answer.
//
// A rule that is not made by RefundIf gets an HTTP status for each code: that of
// google/rpc/code.proto, except 412 for FailedPrecondition, 416 for OutOfRange, 423 for
// Aborted, 507 for DataLoss and 520 for Unknown.
func RefundIf(f func(codes.Code) bool) func(status int) bool {
	return func(status int) bool { return f(codes.Code(rpc.CodeOf(status))) }
}
