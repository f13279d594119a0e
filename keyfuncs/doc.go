// Package keyfuncs determines the key under which a request is counted.
//
// A rule has such a function as its Key. These count by the user if there is one and else by
// the address, and by the address and the route:
//
//	keyfuncs.First(user, keyfuncs.RemoteIP)
//	keyfuncs.Join(keyfuncs.RemoteIP, keyfuncs.Route)
//
// Behind a proxy, [ForwardedIP] takes the place of [RemoteIP]. Every function here is a
// [core.KeyFunc] or makes one:
//
//	the caller      RemoteIP, ForwardedIP, UserID, APIKey, BearerToken, BasicUser, Cookie, Header
//	the target      Route, Method, Path, Host, Global
//	combinations    Join, First, When, Unless
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
//
// All functions are safe for concurrent use.
package keyfuncs
