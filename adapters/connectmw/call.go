package connectmw

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

// Call is a call of a procedure, for the functions of a program.
type Call struct {
	// Context is the context of the call.
	Context context.Context

	// Spec has the procedure, in the form "/package.Service/Method".
	Spec connect.Spec

	// Peer is the client.
	Peer connect.Peer

	// Header has the headers of the request, "Host" among them. It must not be changed.
	Header http.Header

	// Message is the request of a call with one, or the message that Config.Messages is
	// asked about. It is nil for a stream.
	Message any
}

// Request returns the view that the rules of a limiter have of the call of ctx, for
// [limiter.Limiter.PeekRequest], [limiter.Limiter.TakeRequest] and
// [limiter.Limiter.ResetRequest]. It is nil if ctx is not that of a call to a
// server.
func Request(ctx context.Context) core.Request {
	if ctx == nil {
		return nil
	}

	// The rules see the call as the interceptor did, with the context that ctx is now.
	if o, ok := ctx.Value(outerKey{}).(*outer); ok {
		c := *o.request.Call
		c.Context = ctx
		return &request{Call: &c, method: o.request.method}
	}

	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return nil
	}
	c := &Call{Context: ctx, Spec: info.Spec(), Peer: info.Peer(), Header: info.RequestHeader()}
	return &request{Call: c, method: info.HTTPMethod()}
}

// Key returns a key function that calls f with the call. Requests of other frameworks share
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

type tlsKey struct{}

// Handler puts the TLS state of each request into its context, where [TLSIdentity] finds
// it: Connect does not show it to interceptors. It is put around the handlers of a server.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			r = r.WithContext(context.WithValue(r.Context(), tlsKey{}, r.TLS))
		}
		next.ServeHTTP(w, r)
	})
}

// TLSIdentity is a key function that counts by the certificate of the client, as the server
// has verified it: by its URI, as SPIFFE has it, or else its subject, its first DNS name or
// its first e-mail address. A renewed certificate has the same key if these stay. A client
// without a verified certificate has the key "". It needs [Handler] around the handlers.
// The limiter logs a call without that or without TLS, once, with the code HG015.
func TLSIdentity(r core.Request) (key string, ok bool) {
	c, isCall := r.(*request)
	if !isCall {
		return "", true
	}

	state, ok := c.Call.Context.Value(tlsKey{}).(*tls.ConnectionState)
	if !ok {
		c.limiter.Warn(rpc.NoTLS("put connectmw.Handler around the handlers, " +
			"and have the server require and verify certificates"))
		return "", true
	}
	return rpc.Identity(state), true
}

// request is the view that rules have of a call.
type request struct {
	*Call
	method  string           // of HTTP
	limiter *limiter.Limiter // that asks, or nil
}

func (r *request) Context() context.Context { return r.Call.Context }
func (r *request) Method() string           { return r.method }
func (r *request) Path() string             { return r.Spec.Procedure }
func (r *request) Route() string            { return r.Spec.Procedure }
func (r *request) RemoteAddr() string       { return r.Peer.Addr }

// Header decodes binary headers. A value has several encodings, and all of them make one key.
func (r *request) Header(name string) []string {
	lines := r.Call.Header[name]
	if !strings.HasSuffix(name, "-Bin") || len(lines) == 0 {
		return lines
	}

	values := make([]string, len(lines))
	for i, line := range lines {
		values[i] = line
		if b, err := connect.DecodeBinaryHeader(line); err == nil {
			values[i] = string(b)
		}
	}
	return values
}
