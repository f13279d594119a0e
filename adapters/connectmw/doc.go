// Package connectmw limits calls in servers of Connect, over its own protocol, gRPC and
// gRPC-Web, and has clients wait for as long as such a server asks them to.
//
//	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
//		{Name: "peer", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
//	}})
//	limit := connect.WithInterceptors(connectmw.New(l))
//	mux := http.NewServeMux()
//	mux.Handle(upper, connect.NewUnaryHandler(upper, toUpper, limit))
//
// [New] makes the interceptor of a [limiter.Limiter]. A [Config] has what a program adds, such as
// calls to leave out, and [Retry] says how the interceptor of a client, of [NewRetry], repeats
// calls that were refused.
//
// The rules are those of HTTP servers. A call has its procedure, such as
// "/shop.v1.Cart/Add", as path and route, the peer of the connection as address, and its
// headers. So keyfuncs.RemoteIP counts by the peer, keyfuncs.Route by the procedure, and
// keyfuncs.Header and keyfuncs.APIKey by headers. [TLSIdentity] counts by the certificate
// of the client, and [Key] by anything else.
//
// A refused call ends with the code resource_exhausted, and with the details RetryInfo and
// QuotaFailure, which names the rules. A caller whom a rule denies gets permission_denied.
// If the store cannot decide and a rule fails closed, the code is unavailable. The
// RateLimit fields and Retry-After are headers of the answer. The middleware of package
// nethttp around a handler answers 429 without a code instead, which clients of Connect
// take for unavailable.
//
// The health and reflection services are not limited; see [Config].
//
// Put the interceptor behind [connect.WithRecover] and, for rules about users, behind what
// authenticates them. A server answers calls of procedures without a handler uncounted.
package connectmw
