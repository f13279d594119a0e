package connectmw

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

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

// NewRetry returns an interceptor for clients that repeats calls which ended with the
// detail RetryInfo, as those do that a limiter refuses. Before it repeats a call, it waits
// as long as RetryInfo says, and up to a tenth longer, at random, so that clients which
// were refused together do not come back together. If that would take longer than MaxWait,
// or longer than until the deadline of the context, the call ends with the error at once.
// A call without RetryInfo, and one of a stream, is not repeated. For handlers the
// interceptor does nothing.
//
// The error joins all mistakes.
func NewRetry(r Retry) (connect.Interceptor, error) {
	retry, err := rpc.Retry{MaxWait: r.MaxWait, MaxAttempts: r.MaxAttempts}.Complete()
	if err != nil {
		return nil, fmt.Errorf("connectmw: Retry: %w", err)
	}
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if !req.Spec().IsClient {
				return next(ctx, req)
			}

			// The answer of the last attempt is kept; those before were errors.
			var resp connect.AnyResponse
			err := retry.Do(ctx, func() (err error) {
				resp, err = next(ctx, req)
				return err
			}, delayOf)

			// A wait that the context ends has an error without a code, which no call of Connect
			// returns.
			if err != nil && err == ctx.Err() {
				err = contextError(err)
			}

			if err != nil {
				return nil, err
			}
			return resp, nil
		}
	}), nil
}

// MustRetry is [NewRetry] for program text. It panics where that returns an error.
func MustRetry(r Retry) connect.Interceptor {
	interceptor, err := NewRetry(r)
	if err != nil {
		panic(err)
	}
	return interceptor
}

// delayOf returns the delay that an error asks for.
func delayOf(err error) (time.Duration, bool) {
	var coded *connect.Error
	if !errors.As(err, &coded) {
		return 0, false
	}
	for _, detail := range coded.Details() {
		message, _ := detail.Value() // nil if it cannot be read
		if info, ok := message.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}
