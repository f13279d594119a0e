package grpcmw

import (
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/internal/setup"
	"github.com/headgate/headgate/limiter"
)

// Config is what a program adds to the interceptors of [New]. Each field may be unset.
type Config struct {
	// Skip makes the interceptors ignore the calls for which it returns true: they reach the
	// handlers uncounted. A call for which it panics is counted, and the panic is an error for
	// OnError.
	Skip func(*Call) bool

	// Probes makes the interceptors count calls of the health and reflection services
	// (grpc.health.v1.Health and grpc.reflection) like any other. Without it they pass
	// uncounted, so that a load balancer is not refused. Any client can call them then: where
	// the server can be reached from outside, limit them too or do not register them there.
	Probes bool

	// Refused answers refused calls. They end with the error that it returns, which should be
	// one of package status, or if that is nil, with that of the limiter. The metadata of the
	// limiter is sent in both cases. It must not keep the admission.
	//
	// The templates of the limiter, such as the Refused of its own Config, make HTTP answers. A
	// call that is refused without an error of this function has them called too, for their
	// delays (see [limiter.Tarpit]), but not sent.
	Refused func(*Call, *limiter.Admission) error

	// Failed is like Refused, for calls that end with Unavailable because the store could not
	// decide and the limiter fails closed, or because too many requests wait already; see
	// [limiter.Admission.Outcome].
	Failed func(*Call, *limiter.Admission) error

	// Messages is asked about every message that a client streams, in addition to the limits of
	// the stream itself. [Message] returns the message to the functions of its rules. Receiving
	// a message that is refused fails with ResourceExhausted, and so does the stream if its
	// handler returns that error. A rule whose action is Wait makes the handler wait, and
	// gRPC then stops the client from sending. A message is over once it is received, so that
	// leases, RefundIf and the result in the context have no use in this limiter.
	Messages *limiter.Limiter
}

// configOf returns the Config of New, and logs the mistakes in it and in both limiters.
func configOf(l *limiter.Limiter, list []Config) Config {
	config, err := setup.ConfigOf(l, list)
	if config.Messages != nil && config.Messages != l {
		err = errors.Join(err, config.Messages.CheckRequests())
	}
	l.LogSetup("grpcmw.New", err)
	return config
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
