package grpcmw

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

// Call is a call of a method, for the functions of a program.
type Call struct {
	// Context is the context of the call, with its metadata and its peer.
	Context context.Context

	// FullMethod is the method in the form "/package.Service/Method".
	FullMethod string

	// Message is the request of a call with one, or the message that Config.Messages is
	// asked about. It is nil for a stream.
	Message any
}

// Request returns the view that the rules of a limiter have of the call of ctx, for
// [limiter.Limiter.PeekRequest], [limiter.Limiter.TakeRequest] and
// [limiter.Limiter.ResetRequest]. It is nil if ctx is not that of a call to a server.
func Request(ctx context.Context) core.Request {
	if ctx == nil {
		return nil
	}
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return &request{Call: &Call{Context: ctx, FullMethod: x.method, Message: x.message}, known: x.known}
	}

	// Outside of the interceptors the stream knows the method.
	method, ok := grpc.Method(ctx)
	if !ok {
		return nil
	}
	return &request{Call: &Call{Context: ctx, FullMethod: rooted(method)}, known: true}
}

// Key returns a key function that calls f with the call. Requests of HTTP frameworks share
// the key "".
func Key(f func(*Call) (key string, ok bool)) core.KeyFunc {
	return func(r core.Request) (string, bool) {
		if r, ok := r.(*request); ok {
			return f(r.Call)
		}
		return "", true
	}
}

// Message returns the message of the call that r is the view of, and nil for other
// requests. It is for the Cost and Key functions of rules; see Call.Message.
func Message(r core.Request) any {
	if r, ok := r.(*request); ok {
		return r.Call.Message
	}
	return nil
}

// TLSIdentity is a key function that counts by the certificate of the client, as the server
// has verified it: by its URI, as SPIFFE has it, or else its subject, its first DNS name or
// its first e-mail address. A renewed certificate has the same key if these stay. A client
// without a verified certificate has the key "". The limiter logs a call without TLS, once,
// with the code HG015.
func TLSIdentity(r core.Request) (key string, ok bool) {
	c, isCall := r.(*request)
	if !isCall {
		return "", true
	}

	if p, ok := peer.FromContext(c.Call.Context); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return rpc.Identity(&info.State), true
		}
	}

	c.limiter.Warn(rpc.NoTLS("give the server credentials that require and verify certificates"))
	return "", true
}

// request is the view that rules have of a call.
type request struct {
	*Call
	known   bool             // the method is registered
	limiter *limiter.Limiter // that asks, or nil
}

func (r *request) Context() context.Context { return r.Call.Context }

// Method returns that of every call in HTTP/2.
func (r *request) Method() string { return "POST" }

func (r *request) Path() string { return r.FullMethod }

// Route returns the method, or "" if it is not registered, because clients can make up
// any number of such methods.
func (r *request) Route() string {
	if !r.known {
		return ""
	}
	return r.FullMethod
}

func (r *request) addr() net.Addr {
	if p, ok := peer.FromContext(r.Call.Context); ok {
		return p.Addr
	}
	return nil
}

// RemoteAddr returns "" if the connection has no peer.
func (r *request) RemoteAddr() string {
	if a := r.addr(); a != nil {
		return a.String()
	}
	return ""
}

// RemoteAddrPort returns the address in binary form, for package keyfuncs.
func (r *request) RemoteAddrPort() netip.AddrPort {
	if a, ok := r.addr().(*net.TCPAddr); ok && a != nil {
		return a.AddrPort()
	}
	return netip.AddrPort{}
}

func (r *request) Header(name string) []string {
	if name == "Host" {
		return metadata.ValueFromIncomingContext(r.Call.Context, ":authority")
	}
	return metadata.ValueFromIncomingContext(r.Call.Context, strings.ToLower(name))
}
