package connectmw

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

// reject returns the error of a call that does not pass, and ends its admission.
func (i *interceptor) reject(c *Call, a *limiter.Admission) error {
	defer a.Done(a.Status())

	own := i.config.Refused
	if a.Status() == http.StatusServiceUnavailable {
		own = i.config.Failed
	}

	if own != nil {
		if err := own(c, a); err != nil {
			return err
		}
	}

	// A tarpit delays the answer. The client may have gone by then.
	a.Answer()
	if err := c.Context.Err(); err != nil {
		return contextError(err)
	}
	return errorOf(rpc.RefusalOf(a))
}

// contextError returns the error of a context that has ended.
func contextError(err error) *connect.Error {
	if errors.Is(err, context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	return connect.NewError(connect.CodeCanceled, err)
}

// errorOf returns the refusal as an error with details.
func errorOf(r rpc.Refusal) error {
	err := connect.NewError(connect.Code(r.Code), errors.New(r.Message))
	if r.RetryAfter > 0 {
		addDetail(err, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.RetryAfter)})
	}

	if len(r.Violations) > 0 {
		quota := &errdetails.QuotaFailure{}
		for _, v := range r.Violations {
			violation := &errdetails.QuotaFailure_Violation{Subject: v.Rule, Description: v.Description}
			quota.Violations = append(quota.Violations, violation)
		}
		addDetail(err, quota)
	}
	return err
}

func addDetail(err *connect.Error, message proto.Message) {
	if detail, failure := connect.NewErrorDetail(message); failure == nil {
		err.AddDetail(detail)
	}
}

// withMeta adds headers to an error of this package, which sends them as trailers. An error
// of the program may be one that other calls return at the same time. Cache-Control is not
// allowed among trailers.
func withMeta(err error, header http.Header) error {
	e, ok := err.(*connect.Error)
	if !ok || len(e.Details()) == 0 {
		return err
	}
	for name, values := range header {
		if name != "Cache-Control" {
			e.Meta()[name] = values
		}
	}
	return err
}

// setHeaders puts the headers of an admission into h.
func setHeaders(h http.Header, a *limiter.Admission) {
	headers := a.Headers()
	values := make([]string, len(headers))
	for i, field := range headers {
		values[i] = field.Value
		h[field.Name] = values[i : i+1 : i+1]
	}
}

// statusOf returns the status by which rules know the code that the client gets for err.
func statusOf(err error) int {
	var coded *connect.Error
	switch {
	case err == nil || connect.IsNotModifiedError(err):
		return rpc.OK.Status()
	case errors.As(err, &coded):
		return rpc.Code(coded.Code()).Status()
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return rpc.Code(contextError(err).Code()).Status()
	}
	return rpc.Unknown.Status()
}
