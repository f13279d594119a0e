package grpcmw

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/rpc"
)

// Retry says how a client repeats calls that a server has refused for a while. The zero
// value is that of the defaults.
type Retry struct {
	// MaxWait is the longest time that one call waits, in all; 0 means 10 s.
	MaxWait time.Duration

	// MaxAttempts is how many times one call is sent, the first included; 0 means 5.
	MaxAttempts int
}

// NewRetry returns a [grpc.UnaryClientInterceptor] that repeats calls which ended with the
// detail RetryInfo, as those do that a limiter refuses. Before it repeats a call, it waits
// as long as RetryInfo says, and up to a tenth longer, at random, so that clients which
// were refused together do not come back together. If that would take longer than MaxWait,
// or longer than until the deadline of the context, the call ends with the error at once.
// A call without RetryInfo, and one of a stream, is not repeated. For streams a service
// config may have a retry policy, which heeds a limiter too; see the package.
//
// The error joins all mistakes.
func NewRetry(r Retry) (grpc.UnaryClientInterceptor, error) {
	retry, err := rpc.Retry{MaxWait: r.MaxWait, MaxAttempts: r.MaxAttempts}.Complete()
	if err != nil {
		return nil, fmt.Errorf("grpcmw: Retry: %w", err)
	}
	return func(
		ctx context.Context, method string, req, reply any,
		cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := retry.Do(ctx, func() error { return invoker(ctx, method, req, reply, cc, opts...) }, delayOf)

		// A wait that the context ends has an error without a code, which no call of gRPC returns.
		if _, ok := status.FromError(err); !ok {
			err = status.FromContextError(err).Err()
		}
		return err
	}, nil
}

// MustRetry is [NewRetry] for program text. It panics where that returns an error.
func MustRetry(r Retry) grpc.UnaryClientInterceptor {
	interceptor, err := NewRetry(r)
	if err != nil {
		panic(err)
	}
	return interceptor
}

// delayOf returns the delay that an error asks for.
func delayOf(err error) (time.Duration, bool) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}
