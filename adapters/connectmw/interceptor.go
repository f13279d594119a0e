package connectmw

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

// New returns an interceptor for handlers that asks l about every call. It is safe for
// concurrent use and may be given to any number of handlers; for clients it does nothing.
// A call that meets l more than once is counted the first time. New logs mistakes in l and
// in the Config to the log of l; see [limiter.Limiter.CheckRequests]. Under a nil limiter
// all calls end with unavailable.
func New(l *limiter.Limiter, config ...Config) connect.Interceptor {
	return &interceptor{config: configOf(l, config), limiter: l}
}

type interceptor struct {
	config  Config
	limiter *limiter.Limiter
}

// WrapUnary implements [connect.Interceptor].
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}

		c := &Call{Context: ctx, Spec: req.Spec(), Peer: req.Peer(), Header: req.Header(), Message: req.Any()}
		if i.passes(c) {
			return next(ctx, req)
		}

		// Without a handler, as in a test, the headers of the answer go nowhere.
		header := http.Header{}
		if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
			header = info.ResponseHeader()
		}
		r := &request{Call: c, method: req.HTTPMethod(), limiter: i.limiter}
		a, err := i.admit(r, header)
		if err != nil {
			return nil, err
		}

		// A panic ends the call as an internal error: the status is that unless the handler
		// returns.
		status := rpc.Internal.Status()
		defer func() { a.Done(status) }()
		resp, err := next(contextOf(r, a), req)
		status = statusOf(err)
		return resp, err
	}
}

// WrapStreamingHandler implements [connect.Interceptor]. It holds leases until the handler
// of the stream returns.
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		// Streams are POST requests in every protocol of Connect.
		c := &Call{Context: ctx, Spec: conn.Spec(), Peer: conn.Peer(), Header: conn.RequestHeader()}
		if i.passes(c) {
			return next(ctx, conn)
		}

		r := &request{Call: c, method: http.MethodPost, limiter: i.limiter}
		a, err := i.admit(r, conn.ResponseHeader())
		if err != nil {
			return err
		}

		status := rpc.Internal.Status()
		defer func() { a.Done(status) }()
		if i.config.Messages != nil && c.Spec.StreamType&connect.StreamTypeClient != 0 {
			conn = &messageConn{conn, i, c}
		}

		err = next(contextOf(r, a), conn)
		status = statusOf(err)
		return err
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// outer is what a limiter leaves in the context of a call that it has let pass.
type outer struct {
	mark    *limiter.Mark
	request *request
}

type outerKey struct{}

// passes reports whether the call is not to be counted, or was counted before.
func (i *interceptor) passes(c *Call) bool {
	if !i.config.Probes && rpc.IsProbe(c.Spec.Procedure) {
		return true
	}
	if i.config.Skip != nil && i.limiter.Try("Config.Skip", func() bool { return i.config.Skip(c) }) {
		return true
	}

	return i.limiter.CountedBy(markOf(c.Context))
}

// markOf returns the mark of the limiters that the call has met, or nil.
func markOf(ctx context.Context) *limiter.Mark {
	if o, ok := ctx.Value(outerKey{}).(*outer); ok {
		return o.mark
	}
	return nil
}

// contextOf returns the context of the handler of a call that passes.
func contextOf(r *request, a *limiter.Admission) context.Context {
	ctx := context.WithValue(r.Call.Context, outerKey{}, &outer{a.Mark(), r})
	if a.NeedsContext() {
		ctx = limiter.NewContext(ctx, a)
	}
	return ctx
}

// admit asks the limiter, and puts its headers into those of the answer. Of a call that
// does not pass it returns the error, and the admission is done.
func (i *interceptor) admit(r *request, header http.Header) (*limiter.Admission, error) {
	a := i.limiter.Admit(r)
	a.Merge(markOf(r.Call.Context), header.Get)
	setHeaders(header, a)
	if a.Status() == 0 {
		return a, nil
	}
	return nil, i.reject(r.Call, a)
}

// messageConn is a stream whose messages are limited.
type messageConn struct {
	connect.StreamingHandlerConn
	interceptor *interceptor
	call        *Call
}

// Receive asks Config.Messages about each message.
func (m *messageConn) Receive(message any) error {
	if err := m.StreamingHandlerConn.Receive(message); err != nil {
		return err
	}

	l, c := m.interceptor.config.Messages, *m.call
	c.Message = message
	a := l.Admit(&request{Call: &c, method: http.MethodPost, limiter: l})
	if a.Status() == 0 {
		a.Done(http.StatusOK)
		return nil
	}

	// The headers of the stream may be sent already, so those of a message go with the error.
	header := http.Header{}
	setHeaders(header, a)
	return withMeta(m.interceptor.reject(&c, a), header)
}
