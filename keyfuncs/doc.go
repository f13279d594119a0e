// Package keyfuncs tells whom a request is counted against.
//
// Every function here is a [core.KeyFunc] or makes one:
//
//	who is calling      RemoteIP, ForwardedIP, UserID, APIKey, BearerToken, BasicUser, Cookie, Header
//	what is called      Route, Method, Path, Host, Global
//	made of others      Join, First, When, Unless, HMAC
//
// # What the keys are
//
// A caller who cannot be told gets the key "" with ok true: all such callers
// share one count, and none goes uncounted. That holds for a missing header, a
// credential that is not one, a nil function, and a header sent twice where one
// is meant, because two readers of such a request may disagree about it.
//
// Two callers never get the same key by choice of bytes. Keys of at most 128
// bytes are readable text. Longer ones are replaced by "sha256:" and a digest,
// and so is a text that begins with "sha256:" by itself. Credentials are always
// replaced by a digest, of 128 bits in base64url. Bytes are otherwise kept as
// they are, so a key that goes to a log must be quoted there.
//
// A key may share memory with its request; whoever keeps it clones it.
//
// # What to trust
//
// A key that the caller can choose is a limit that the caller can avoid, and,
// worse, one that can be used up in somebody else's name. Addresses of
// connections and users who have been authenticated cannot be chosen. Headers,
// cookies, paths, hosts and credentials nobody has checked can. Put a limit by
// address in front of the authentication and a limit by user behind it.
//
// All functions are safe for concurrent use.
package keyfuncs
