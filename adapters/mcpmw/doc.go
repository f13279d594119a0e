// Package mcpmw limits calls in MCP servers of the official Go SDK, over stdio and over
// streamable HTTP.
//
//	each := limiter.Rule{Name: "tool", Key: keyfuncs.Join(mcpmw.User, mcpmw.Tool)}
//	each.Limit = core.MustParseLimit("5/1m")
//	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{each}})
//	server.AddReceivingMiddleware(mcpmw.New(l))
//	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
//	http.Handle("/mcp", mcpmw.Handler(h))
//
// [New] makes the middleware of a [limiter.Limiter]. A [Config] has what a program adds, such
// as the methods to count. [Handler] is for HTTP alone: with it a refusal has the status 429 and
// Retry-After, answers have the RateLimit fields, and rules see the address of the peer.
//
// The rules are those of HTTP servers. A call has the method POST, the MCP method after a slash,
// such as "/tools/call", as route, the route and the name of the tool, the prompt or the URI of
// the resource, such as "/tools/call/search", as path, and the headers of its HTTP request. So
// keyfuncs.Route counts by the MCP method, and policies match tools as paths. [User], [Session],
// [Tool], [Resource] and [Prompt] are keys, and so is any function of the call, by [Key]. A tool
// costs what [ToolCosts] says.
//
// A refused call ends with a JSON-RPC error with [CodeRateLimited] and [RateLimitedData]. A
// caller whom a rule denies gets [CodeDenied]. If the store cannot decide and a rule fails
// closed, the code is [CodeUnavailable].
//
// A RefundIf gets 200 for a result, 500 for a result that is a tool's error, for a panic and for
// the code -32603, 400 for -32700 and -32600, 404 for -32601, 422 for -32602, 499 and 504 for a
// context that was cancelled or has expired, and 520 for other errors.
//
// The SDK reads the whole message before the middleware runs, so a refused call has cost that.
// It answers methods that it does not know uncounted, and tools that it does not know are
// counted like others; see [Config].
package mcpmw
