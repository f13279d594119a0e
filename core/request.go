package core

import "context"

// Request is the part of an HTTP request that rules may use. Adapters implement
// it for their framework. Strings that it returns may be valid only until the
// request ends; a caller that keeps one clones it.
type Request interface {
	Context() context.Context
	Method() string
	// Path is the decoded path that the client asked for.
	Path() string
	// Route is the pattern that the router matched, such as "/users/{id}", or
	// "" where the framework does not know it yet.
	Route() string
	// RemoteAddr is the peer of the connection, as "ip:port". It is never taken
	// from a header.
	RemoteAddr() string
	// Header returns every line of the header, in the order of arrival. The
	// name is canonical, as in "X-Forwarded-For". "Host" is the host asked for.
	Header(name string) []string
}

// KeyFunc returns the key under which a request is counted. ok false means that
// the rule does not apply to this request. A function that cannot identify the
// caller returns "", true: unknown callers share one key, and none goes
// uncounted. It must not keep the request.
type KeyFunc func(r Request) (key string, ok bool)
