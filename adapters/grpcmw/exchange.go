package grpcmw

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/limiter"
)

// exchange is what the limiters that a call has met keep of it. Only the outermost sends the
// fields, once, and in one of two places:
//
//	first message, or end without an error     header
//	end with an error before any message       trailer, so that a retry policy may retry
//	end with an error after a refused message  trailer, with the fields of that refusal
type exchange struct {
	known   bool // the method is registered
	method  string
	message any
	mark    *limiter.Mark
	fields  metadata.MD // of all limiters that the call has met; set before the handler runs

	mu      sync.Mutex
	sent    bool        // Guarded by mu.
	refused metadata.MD // of a message that was refused. Guarded by mu.
}

type exchangeKey struct{}

// exchangeOf returns the exchange of a call. nested reports whether another limiter is around this
// one.
func exchangeOf(c *Call, known bool) (x *exchange, nested bool) {
	if x, ok := c.Context.Value(exchangeKey{}).(*exchange); ok {
		return x, true
	}
	return &exchange{known: known}, false
}

// contextOf returns the context of the handler of a call that passes.
func (e *exchange) contextOf(c *Call, a *limiter.Admission, nested bool) context.Context {
	ctx := c.Context
	if !nested {
		e.method, e.message = c.FullMethod, c.Message
		ctx = context.WithValue(ctx, exchangeKey{}, e)
	}
	if a.NeedsContext() {
		ctx = limiter.NewContext(ctx, a)
	}
	return ctx
}

// add adds the fields of an admission to those of the limiters around.
func (e *exchange) add(a *limiter.Admission) {
	a.Merge(e.mark, func(name string) string {
		if list := e.fields[lower(name)]; len(list) > 0 {
			return list[0]
		}
		return ""
	})
	e.fields = appendFields(e.fields, a)
}

// header sends the fields before the first message, once.
func (e *exchange) header(s sender) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sent {
		return
	}
	e.sent = true
	if s.SetHeader(e.fields) != nil {
		s.SetTrailer(e.fields) // the handler has sent a header by another way
	}
}

// refuse keeps the fields of a message that was refused.
func (e *exchange) refuse(fields metadata.MD) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refused = fields
}

// finish sends the fields of a call that ends with err, if no message was sent before.
func (e *exchange) finish(s sender, err error) {
	if err == nil {
		e.header(s)
		return
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.refused != nil:
		s.SetTrailer(e.refused)
	case !e.sent:
		s.SetTrailer(e.fields)
	}
	e.sent = true
}

// ending is the end of a call.
type ending struct {
	exchange  *exchange
	sender    sender
	nested    bool               // another limiter is around this one
	admission *limiter.Admission // nil if the call was refused
	err       error
}

// errPanicked stands for the error of a handler that panics.
var errPanicked = status.Error(codes.Internal, "panic")

// end is deferred, so that it is called after a panic too.
func (e *ending) end() {
	if e.admission != nil {
		e.admission.Done(statusOf(e.err))
	}
	if !e.nested {
		e.exchange.finish(e.sender, e.err)
	}
}

// sender is a stream by which metadata is sent.
type sender interface {
	SetHeader(metadata.MD) error
	SetTrailer(metadata.MD)
}

// contextStream is the stream of the context.
type contextStream struct{ ctx context.Context }

func (c contextStream) SetHeader(md metadata.MD) error { return grpc.SetHeader(c.ctx, md) }

// SetTrailer ignores the error of a context without a stream, as in a test of a handler.
func (c contextStream) SetTrailer(md metadata.MD) { _ = grpc.SetTrailer(c.ctx, md) }

// stream is a stream that passes.
type stream struct {
	grpc.ServerStream
	ctx      context.Context
	exchange *exchange
	nested   bool // another limiter is around this one

	server *Server // nil unless messages are limited
	call   *Call
}

// Context returns the context of the handler.
func (s *stream) Context() context.Context { return s.ctx }

// SendHeader sends the fields of the limiters too.
func (s *stream) SendHeader(md metadata.MD) error {
	if !s.nested {
		s.exchange.header(s.ServerStream)
	}
	return s.ServerStream.SendHeader(md)
}

// SendMsg sends the fields of the limiters before the first message.
func (s *stream) SendMsg(m any) error {
	if !s.nested {
		s.exchange.header(s.ServerStream)
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg asks Config.Messages about each message.
func (s *stream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err != nil || s.server == nil {
		return err
	}

	l := s.server.config.Messages
	c := &Call{Context: s.call.Context, FullMethod: s.call.FullMethod, Message: m}
	a := l.Admit(&request{Call: c, known: s.exchange.known, limiter: l})
	if a.Status() == 0 {
		a.Done(okStatus)
		return nil
	}

	// The stream may have sent its header long ago, so the fields of a message go into the trailer.
	fields := appendFields(nil, a)
	err = s.server.reject(c, a, fields)
	s.exchange.refuse(fields)
	return err
}
