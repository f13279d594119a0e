// Package rpc holds what the adapters for gRPC and for Connect have in common: the error of a
// refused call, the statuses by which rules know codes, the identity of a client's certificate,
// and retries. It imports neither gRPC nor Connect. A [Refusal] is that error, which the adapter
// for MCP has too.
package rpc

// Code is a code of gRPC and of Connect, which have the same numbers.
type Code uint32

// The codes that this package gives out.
const (
	OK                Code = 0
	Unknown           Code = 2
	PermissionDenied  Code = 7
	ResourceExhausted Code = 8
	Internal          Code = 13
	Unavailable       Code = 14
)

// statuses has the HTTP status of each code. Each is that of google/rpc/code.proto, unless
// that is the status of another code too. Then it is another of the same class, so that
// a code can be told from its status.
var statuses = [...]int{
	OK:                200,
	1:                 499, // canceled
	Unknown:           520,
	3:                 400, // invalid argument
	4:                 504, // deadline exceeded
	5:                 404, // not found
	6:                 409, // already exists
	PermissionDenied:  403,
	ResourceExhausted: 429,
	9:                 412, // failed precondition
	10:                423, // aborted
	11:                416, // out of range
	12:                501, // unimplemented
	Internal:          500,
	Unavailable:       503,
	15:                507, // data loss
	16:                401, // unauthenticated
}

// Status returns the HTTP status by which rules know the code. No two codes have the same
// one, except that codes which gRPC does not define have that of Unknown.
func (c Code) Status() int {
	if c >= Code(len(statuses)) {
		c = Unknown
	}
	return statuses[c]
}

// CodeOf returns the code with the status. It is OK for other statuses below 400, and
// Unknown for the rest.
func CodeOf(status int) Code {
	for c, s := range statuses {
		if s == status {
			return Code(c)
		}
	}
	if status < 400 {
		return OK
	}
	return Unknown
}

// IsProbe reports whether the procedure is one of the health and reflection services of
// gRPC, which load balancers and tools call.
func IsProbe(procedure string) bool {
	switch procedure {
	case "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List", "/grpc.health.v1.Health/Watch",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo":
		return true
	}
	return false
}
