package connectmw

import (
	"errors"

	"connectrpc.com/connect"

	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/internal/setup"
	"github.com/headgate/headgate/limiter"
)

// Config is what a program adds to the interceptor of [New]. Each field may be unset.
type Config struct {
	// Skip makes the interceptor ignore the calls for which it returns true: they reach the
	// handlers uncounted. A call for which it panics is counted, and the panic is an error for
	// OnError.
	Skip func(*Call) bool

	// Probes makes the interceptor count calls of the health and reflection services
	// (grpc.health.v1.Health and grpc.reflection) like any other. Without it they pass
	// uncounted, so that a load balancer is not refused. Any client can call them then: where
	// the server can be reached from outside, limit them too or do not register them there.
	Probes bool

	// Refused answers refused calls. They end with the error that it returns, which should be
	// a [*connect.Error], or if that is nil, with that of the limiter. The headers of the
	// limiter are sent in both cases. It must not keep the admission.
	//
	// The templates of the limiter, such as the Refused of its own Config, make HTTP answers. A
	// call that is refused without an error of this function has them called too, for their
	// delays (see [limiter.Tarpit]), but not sent.
	Refused func(*Call, *limiter.Admission) error

	// Failed is like Refused, for calls that end with unavailable because the store could not
	// decide and the limiter fails closed, or because too many requests wait already; see
	// [limiter.Admission.Outcome].
	Failed func(*Call, *limiter.Admission) error

	// Messages is asked about every message that a client streams, in addition to the limits of
	// the stream itself. [Message] returns the message to the functions of its rules. Receiving
	// a message that is refused fails with resource_exhausted, and so does the stream if its
	// handler returns that error. A rule whose action is Wait makes the handler wait, and
	// HTTP/2 then stops the client from sending. A message is over once it is received, so that
	// leases, RefundIf and the result in the context have no use in this limiter.
	Messages *limiter.Limiter
}

// configOf returns the Config of New, and logs the mistakes in it and in both limiters.
func configOf(l *limiter.Limiter, list []Config) Config {
	config, err := setup.ConfigOf(l, list)
	if config.Messages != nil && config.Messages != l {
		err = errors.Join(err, config.Messages.CheckRequests())
	}
	l.LogSetup("connectmw.New", err)
	return config
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
