// Package keyfuncs determines the key under which a request is counted.
//
//	user := keyfuncs.UserID(currentUser) // reads the user from the context of a request
//	address := keyfuncs.MustForwardedIP(keyfuncs.Proxies{Trusted: []string{"10.0.0.0/8"}})
//	caller := keyfuncs.First(user, address)
//	login := keyfuncs.Join(address, keyfuncs.Route)
//
//	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
//		{Name: "caller", Key: caller, Limit: core.MustParseLimit("100/1m")},
//		{Name: "login", Key: login, Limit: core.MustParseLimit("5/1m")},
//	}})
//
// Every function here is a [core.KeyFunc] or makes one, and is safe for concurrent use:
//
//	the caller      RemoteIP, ForwardedIP, UserID, APIKey, BearerToken, BasicUser, Cookie, Header
//	the target      Route, Method, Path, Host, Global
//	combinations    Join, First, When, Unless
//
// [RemoteIP] is the address of the connection. Behind a proxy that is the proxy, and
// [ForwardedIP] takes its place; [Proxies] says which proxies to believe. [Access] lists callers
// whom a rule does not limit, and others whom it refuses.
//
// # Keys
//
// A caller that cannot be identified has the key "" with ok true: all such
// callers share one count, and none goes uncounted. That holds for a missing
// header, an invalid credential, a nil function, and a header sent twice where
// one is expected, because two readers of such a request may disagree about it.
//
// Two callers never get the same key by choice of bytes. Keys of at most 128
// bytes are readable text. Longer ones are replaced by "sha256:" and a digest,
// and so is a text that begins with "sha256:" itself. Credentials are always
// replaced by a digest, of 128 bits in base64url. All other bytes are kept as
// they are, so a key must be quoted in a log. redisstore.Options.Secret keeps
// readable keys out of Redis.
//
// A key may share memory with its request. A caller that keeps the key clones
// it.
//
// # Trust
//
// If the caller can choose the key, the caller can avoid the limit and, worse,
// use up the limit of others. Addresses of connections and authenticated users
// cannot be chosen. Headers, cookies, paths, hosts and unchecked credentials
// can. Put a limit by address in front of the authentication and a limit by
// user behind it.
package keyfuncs
