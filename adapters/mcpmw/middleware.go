package mcpmw

import (
	"context"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

// New returns the middleware that asks l about every call, for [mcp.Server.AddReceivingMiddleware].
// It is safe for concurrent use and may be given to any number of servers. A call that meets l
// more than once is counted the first time. New logs mistakes in l and in the Config to the log
// of l; see [limiter.Limiter.CheckRequests]. Under a nil limiter all calls end with
// [CodeUnavailable].
//
// Leases are held until the handler returns, also after the client has left: the SDK ends the
// context of a call when the client cancels it.
func New(l *limiter.Limiter, config ...Config) mcp.Middleware {
	m := &middleware{limiter: l}
	m.config, m.counted = configOf(l, config)

	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if !m.counted[method] {
				return next(ctx, method, req)
			}
			return m.serve(ctx, method, req, next)
		}
	}
}

type middleware struct {
	config  Config
	counted map[string]bool
	limiter *limiter.Limiter
}

// exchange is what a limiter that a call has met keeps of it, in the context of the handler.
type exchange struct {
	request request
	reply   *reply        // nil without [Handler]
	mark    *limiter.Mark // of the limiter and of those around it, for a call that passes
}

type exchangeKey struct{}

// serve asks the limiter about a call, and then the handler.
func (m *middleware) serve(
	ctx context.Context, method string, req mcp.Request, next mcp.MethodHandler,
) (mcp.Result, error) {
	x := &exchange{request: request{call: Call{ctx, method, req}, known: m.config.Known, limiter: m.limiter}}
	if m.config.Skip != nil && m.limiter.Try("Config.Skip", func() bool { return m.config.Skip(&x.request.call) }) {
		return next(ctx, method, req)
	}

	// A call that another limiter has let pass comes with its exchange.
	outer, nested := ctx.Value(exchangeKey{}).(*exchange)
	if nested && m.limiter.CountedBy(outer.mark) {
		return next(ctx, method, req)
	}

	// The headers and the status wait in the reply for the first message.
	x.reply = replyOf(req.GetExtra())
	a := m.limiter.Admit(&x.request)
	if nested {
		a.Merge(outer.mark, x.reply.header)
	}
	x.reply.announce(a)
	if a.Status() != 0 {
		return nil, m.reject(x, a)
	}

	// A panic ends the call as an internal error: the status is that unless the handler returns.
	status := rpc.Internal.Status()
	defer func() { a.Done(status) }()

	x.mark = a.Mark()
	ctx = context.WithValue(ctx, exchangeKey{}, x)
	if a.NeedsContext() {
		ctx = limiter.NewContext(ctx, a)
	}

	res, err := next(ctx, method, req)
	status = statusOf(res, err)
	return res, err
}

// reject returns the error of a call that does not pass, and ends its admission.
func (m *middleware) reject(x *exchange, a *limiter.Admission) error {
	defer a.Done(a.Status())
	own := m.config.Refused
	if a.Status() == http.StatusServiceUnavailable {
		own = m.config.Failed
	}

	// A panic of the program's function would end the process: the SDK does not recover.
	if own != nil {
		var err error
		m.limiter.Try("Config.Refused or Config.Failed", func() bool {
			err = own(&x.request.call, a)
			return true
		})
		if err != nil {
			return err
		}
	}

	// A tarpit delays the answer. The client may have cancelled the call by then.
	a.Answer()
	if err := x.request.call.Context.Err(); err != nil {
		return err
	}
	return errorOf(a)
}
