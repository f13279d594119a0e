package grpcmw

import (
	"context"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

// Server has the interceptors of a server. It is safe for concurrent use and may serve any
// number of servers. A call that meets the same limiter more than once is counted the
// first time.
type Server struct {
	config  Config
	limiter *limiter.Limiter
}

// New returns the interceptors that ask l about every call. It logs mistakes in l and in
// the Config to the log of l; see [limiter.Limiter.CheckRequests]. Under a nil limiter
// all calls end with Unavailable.
func New(l *limiter.Limiter, config ...Config) *Server {
	return &Server{config: configOf(l, config), limiter: l}
}

// Options returns both interceptors for [grpc.NewServer], which runs interceptors in the
// order of its options.
func (s *Server) Options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(s.Unary), grpc.ChainStreamInterceptor(s.Stream)}
}

// Unary is a [grpc.UnaryServerInterceptor]. A server with streams needs Stream too.
func (s *Server) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	c := &Call{Context: ctx, FullMethod: rooted(info.FullMethod), Message: req}
	if s.passes(c) {
		return handler(ctx, req)
	}

	x, nested := exchangeOf(c, true)
	if nested && s.limiter.CountedBy(x.mark) {
		return handler(ctx, req)
	}

	// end sees errPanicked until the handler has returned, so a panic ends the call with it.
	e := ending{exchange: x, sender: contextStream{ctx}, nested: nested, err: errPanicked}
	defer e.end()
	if e.admission, e.err = s.admit(x, c); e.err != nil {
		return nil, e.err
	}

	ctx, e.err = x.contextOf(c, e.admission, nested), errPanicked
	var resp any
	resp, e.err = handler(ctx, req)
	return resp, e.err
}

// Stream is a [grpc.StreamServerInterceptor]. It holds leases until the handler of the
// stream returns.
func (s *Server) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := &Call{Context: ss.Context(), FullMethod: rooted(info.FullMethod)}
	if s.passes(c) {
		return handler(srv, ss)
	}

	// The method is known unless the handler is that of unknown services, which has no srv.
	x, nested := exchangeOf(c, srv != nil)
	if nested && s.limiter.CountedBy(x.mark) {
		return handler(srv, ss)
	}

	e := ending{exchange: x, sender: ss, nested: nested, err: errPanicked}
	defer e.end()
	if e.admission, e.err = s.admit(x, c); e.err != nil {
		return e.err
	}

	// The stream sends the fields before the first message of the handler.
	w := &stream{ServerStream: ss, ctx: x.contextOf(c, e.admission, nested), exchange: x, nested: nested}
	if info.IsClientStream && s.config.Messages != nil {
		w.server, w.call = s, c
	}

	// As in Unary, end sees errPanicked if the handler panics.
	e.err = errPanicked
	e.err = handler(srv, w)
	return e.err
}

// passes reports whether the call is not to be counted.
func (s *Server) passes(c *Call) bool {
	if !s.config.Probes && rpc.IsProbe(c.FullMethod) {
		return true
	}
	return s.config.Skip != nil && s.limiter.Try("Config.Skip", func() bool { return s.config.Skip(c) })
}

// admit asks the limiter. Of a call that does not pass it returns the error, and the
// admission is done.
func (s *Server) admit(x *exchange, c *Call) (*limiter.Admission, error) {
	a := s.limiter.Admit(&request{Call: c, known: x.known, limiter: s.limiter})
	x.add(a)
	if a.Status() == 0 {
		x.mark = a.Mark()
		return a, nil
	}
	return nil, s.reject(c, a, x.fields)
}

// rooted returns the method with a slash before it. Versions of gRPC before 1.79.3 call
// interceptors and handlers of unknown services with methods as clients wrote them.
func rooted(method string) string {
	if method == "" || method[0] != '/' {
		return "/" + method
	}
	return method
}
