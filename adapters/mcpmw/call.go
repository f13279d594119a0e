package mcpmw

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// Call is a call of a method, for the functions of a program.
type Call struct {
	// Context is the context of the call.
	Context context.Context

	// Method is the method, such as "tools/call".
	Method string

	// Request has the session, the parameters, and over HTTP the headers and the token.
	Request mcp.Request
}

// Name returns the name of the tool or the prompt, or the URI of the resource, that the call
// names, as the client has written it. It is "" for methods without one.
func (c *Call) Name() string {
	switch p := c.Request.GetParams().(type) {
	case *mcp.CallToolParamsRaw:
		return p.Name
	case *mcp.GetPromptParams:
		return p.Name
	case *mcp.ReadResourceParams:
		return p.URI
	case *mcp.SubscribeParams:
		return p.URI
	case *mcp.UnsubscribeParams:
		return p.URI
	}
	return ""
}

// token returns what the SDK knows of the verified token of the call, or nil.
func (c *Call) token() *auth.TokenInfo {
	if extra := c.Request.GetExtra(); extra != nil {
		return extra.TokenInfo
	}
	return nil
}

// overHTTP reports whether the call came in an HTTP request of its own.
func (c *Call) overHTTP() bool {
	extra := c.Request.GetExtra()
	return extra != nil && extra.Header != nil
}

// Request returns the view that the rules of a limiter have of the call of ctx, for
// [limiter.Limiter.PeekRequest], [limiter.Limiter.TakeRequest] and
// [limiter.Limiter.ResetRequest]. It is nil if ctx is not that of a call that a middleware of
// this package has let pass.
func Request(ctx context.Context) core.Request {
	if ctx == nil {
		return nil
	}
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil
	}

	// The rules see the call as the middleware did, with the context that ctx is now.
	r := x.request
	r.call.Context = ctx
	return &r
}

// Key returns a key function that calls f with the call. Requests of HTTP frameworks share
// the key "".
func Key(f func(*Call) (key string, ok bool)) core.KeyFunc {
	return func(r core.Request) (string, bool) {
		if r, ok := r.(*request); ok {
			return f(&r.call)
		}
		return "", true
	}
}

// ToolCosts returns a function for Rule.Cost: a call of a tool costs what the map has for it.
// Any other call costs 1.
func ToolCosts(costs map[string]int64) func(core.Request) int64 {
	return func(r core.Request) int64 {
		if r, ok := r.(*request); ok && r.call.Method == toolsCall {
			if n, ok := costs[r.call.Name()]; ok {
				return n
			}
		}
		return 1
	}
}

// request is the view that rules have of a call.
type request struct {
	call    Call
	known   func(*Call) bool // that of the Config, or nil
	limiter *limiter.Limiter
}

func (r *request) Context() context.Context { return r.call.Context }

// Method returns that of every call over HTTP.
func (r *request) Method() string { return "POST" }

// Route returns one of the methods that are counted, so that clients cannot make up others.
func (r *request) Route() string { return "/" + r.call.Method }

func (r *request) Path() string {
	if name := r.call.Name(); name != "" {
		return "/" + r.call.Method + "/" + name
	}
	return r.Route()
}

// RemoteAddr returns "" without [Handler], and over stdio.
func (r *request) RemoteAddr() string { return r.arrival(arrivalAddr) }

func (r *request) Header(name string) []string {
	extra := r.call.Request.GetExtra()
	if extra == nil {
		return nil
	}

	// HTTP servers of Go keep the host apart from the headers.
	if host := r.arrival(arrivalHost); name == "Host" && host != "" {
		return []string{host}
	}
	return extra.Header[name]
}

// arrival returns a part of what [Handler] has noted, or "".
func (r *request) arrival(part int) string {
	if extra := r.call.Request.GetExtra(); extra != nil {
		if noted := extra.Header[arrivalField]; len(noted) == arrivalParts {
			return noted[part]
		}
	}
	return ""
}
