package grpcmw

import (
	"net/http"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

const (
	okStatus = http.StatusOK

	// pushback is the name of the trailer by which a server says when to retry, to
	// clients whose service config has a retry policy.
	pushback = "grpc-retry-pushback-ms"
)

// reject returns the error of a call that does not pass, and ends its admission. It puts
// the pushback into the fields.
func (s *Server) reject(c *Call, a *limiter.Admission, fields metadata.MD) error {
	defer a.Done(a.Status())
	refusal := rpc.RefusalOf(a)
	fields[pushback] = []string{refusal.Pushback()}

	own := s.config.Refused
	if a.Status() == http.StatusServiceUnavailable {
		own = s.config.Failed
	}

	// A panic of the program's function would end the process: gRPC does not recover.
	if own != nil {
		var err error
		s.limiter.Try("Config.Refused or Config.Failed", func() bool {
			err = own(c, a)
			return true
		})
		if err != nil {
			return err
		}
	}

	// A tarpit delays the answer. The client may have gone by then.
	a.Answer()
	if err := c.Context.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return errorOf(refusal)
}

// errorOf returns the refusal as an error with details.
func errorOf(r rpc.Refusal) error {
	s := status.New(codes.Code(r.Code), r.Message)
	var details []protoadapt.MessageV1

	if r.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.RetryAfter)})
	}
	if len(r.Violations) > 0 {
		quota := &errdetails.QuotaFailure{}
		for _, v := range r.Violations {
			violation := &errdetails.QuotaFailure_Violation{Subject: v.Rule, Description: v.Description}
			quota.Violations = append(quota.Violations, violation)
		}
		details = append(details, quota)
	}

	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return s.Err()
}

// statusOf returns the status by which rules know the code that the client gets for err.
func statusOf(err error) int {
	if err == nil {
		return okStatus
	}
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	return rpc.Code(s.Code()).Status()
}

// appendFields adds the headers of an admission to md, which may be nil. It leaves out
// Cache-Control, as no cache keeps answers of gRPC, and what gRPC cannot send, because one
// such field would break every call.
func appendFields(md metadata.MD, a *limiter.Admission) metadata.MD {
	headers := a.Headers()

	// All values are in one allocation, of which each field has a slice of its own.
	values := make([]string, len(headers))
	if md == nil {
		md = make(metadata.MD, len(headers)+1)
	}

	for i, h := range headers {
		name := lower(h.Name)
		if name == "cache-control" || !isName(name) || !isText(h.Value) {
			continue
		}
		values[i] = h.Value
		md[name] = values[i : i+1 : i+1]
	}
	return md
}

// lower returns the name of a header in lower case, without an allocation for those of a
// limiter.
func lower(name string) string {
	switch name {
	case "Ratelimit":
		return "ratelimit"
	case "Ratelimit-Policy":
		return "ratelimit-policy"
	case "X-Ratelimit-Limit":
		return "x-ratelimit-limit"
	case "X-Ratelimit-Remaining":
		return "x-ratelimit-remaining"
	case "X-Ratelimit-Reset":
		return "x-ratelimit-reset"
	case "Retry-After":
		return "retry-after"
	case "Cache-Control":
		return "cache-control"
	}
	return strings.ToLower(name)
}

// isName reports whether name can be that of a metadata field of a program.
func isName(name string) bool {
	if name == "" || strings.HasPrefix(name, "grpc-") {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

// isText reports whether s can be the value of a metadata field.
func isText(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}
