package mcpmw

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

// The codes of the errors with which calls end that do not pass.
const (
	// CodeRateLimited is that of a call over a limit. It is the one of SEP-3304,
	// https://github.com/modelcontextprotocol/modelcontextprotocol/pull/3304, which is open: until
	// it is accepted, the specification of MCP reserves the code. Config.Refused can give another.
	CodeRateLimited = -32023

	// CodeDenied is that of a caller whom a rule denies. It is the status of HTTP, and so is
	// CodeUnavailable: the specification wants codes of one's own outside of the range that
	// JSON-RPC reserves.
	CodeDenied = 403

	// CodeUnavailable is that of a call about which the store could not decide, or that finds no
	// room to wait.
	CodeUnavailable = 503
)

// RateLimitedData is the data of an error with [CodeRateLimited] or [CodeUnavailable]. It holds
// nothing that the client sent.
type RateLimitedData struct {
	// RetryAfter is the number of seconds, rounded up, until the same call would be admitted if
	// no other came, as in the Retry-After of HTTP. It is 0 if no retry can succeed.
	RetryAfter int64 `json:"retryAfter,omitempty"`

	// Rules are the names of the rules that refused the call.
	Rules []string `json:"rules,omitempty"`
}

// errorOf returns the error of a call that does not pass.
func errorOf(a *limiter.Admission) error {
	refusal := rpc.RefusalOf(a)
	err := &jsonrpc.Error{Code: CodeRateLimited, Message: refusal.Message}
	switch refusal.Code {
	case rpc.PermissionDenied:
		err.Code = CodeDenied
	case rpc.Unavailable:
		err.Code = CodeUnavailable
	}

	data := RateLimitedData{RetryAfter: a.RetryAfter()}
	for _, v := range refusal.Violations {
		data.Rules = append(data.Rules, v.Rule)
	}
	if data.RetryAfter != 0 || data.Rules != nil {
		err.Data, _ = json.Marshal(data) // strings and an integer
	}
	return err
}

// statuses has the HTTP status by which rules know the code of an error.
var statuses = map[int64]int{
	jsonrpc.CodeParseError:     http.StatusBadRequest,
	jsonrpc.CodeInvalidRequest: http.StatusBadRequest,
	jsonrpc.CodeMethodNotFound: http.StatusNotFound,
	jsonrpc.CodeInvalidParams:  http.StatusUnprocessableEntity, // also of a tool that the server does not have
	jsonrpc.CodeInternalError:  http.StatusInternalServerError,
	CodeRateLimited:            http.StatusTooManyRequests,
}

// statusOf returns the status by which rules know how a call ended.
func statusOf(res mcp.Result, err error) int {
	if err == nil {
		if tool, ok := res.(*mcp.CallToolResult); ok && tool != nil && tool.IsError {
			return rpc.Internal.Status()
		}
		return rpc.OK.Status()
	}

	var coded *jsonrpc.Error
	switch {
	case errors.As(err, &coded) && statuses[coded.Code] != 0:
		return statuses[coded.Code]
	case errors.Is(err, context.Canceled):
		return limiter.StatusClientLeft
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	return rpc.Unknown.Status()
}
