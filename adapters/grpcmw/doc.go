// Package grpcmw limits calls in gRPC servers, and has clients wait for as long as such a
// server asks them to.
//
//	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
//		{Name: "peer", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
//	}})
//	limit := grpcmw.New(l)
//	server := grpc.NewServer(limit.Options()...)
//
// A [Server], which [New] makes of a [limiter.Limiter], has the interceptors. A [Config] has what a
// program adds, such as calls to leave out, and [Retry] says how the interceptor of a client, of
// [NewRetry], repeats calls that were refused.
//
// The rules are those of HTTP servers. A call has the method POST, its full method, such
// as "/shop.v1.Cart/Add", as path and route, the peer of the connection as address, and
// its metadata as headers, "Host" being the authority. So keyfuncs.RemoteIP counts by the
// peer, keyfuncs.Route by the method, and keyfuncs.Header and keyfuncs.APIKey by metadata.
// [TLSIdentity] counts by the certificate of the client, and [Key] by anything else.
//
// A refused call ends with the code ResourceExhausted, and with the details RetryInfo and
// QuotaFailure, which names the rules. A caller whom a rule denies gets PermissionDenied.
// If the store cannot decide and a rule fails closed, the code is Unavailable. The
// RateLimit fields are header metadata of a call that ends well. They are trailer metadata
// of one that ends with an error before it has sent anything, because a client whose
// service config has a retry policy retries a call only if it got no header. For such
// clients a refusal has grpc-retry-pushback-ms.
//
// The health and reflection services are not limited; see [Config].
//
// Put the interceptors behind those that recover from panics and, for rules about users,
// behind those that authenticate them. Interceptors of gRPC run only for methods that are
// registered, so the server answers calls of others uncounted, unless it has an
// UnknownServiceHandler. All calls of that have the route "".
package grpcmw
