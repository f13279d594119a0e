package adapterspec

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// overRPC is the transport of calls.
type overRPC struct {
	t *testing.T
	RPCFramework
	client       Client
	wholeSeconds bool // of a refusal
}

func rpcOpener(f RPCFramework) opener {
	return func(t *testing.T) transport { return &overRPC{t: t, RPCFramework: f} }
}

// An rpcBench is a bench for the promises that only calls have.
type rpcBench struct {
	*bench
	*overRPC
}

// onRPC returns a promise that only calls have.
func onRPC(hold func(*rpcBench)) func(*bench) {
	return func(b *bench) { hold(&rpcBench{b, b.transport.(*overRPC)}) }
}

// row runs f as a subtest, on a bench of its own.
func (r *rpcBench) row(name string, f func(*rpcBench)) {
	r.Helper()
	r.bench.row(name, onRPC(f))
}

// serve starts the app.
func (r *rpcBench) serve(a RPCApp) {
	r.Helper()
	r.listen(a)
}

func (o *overRPC) listen(a RPCApp) {
	o.t.Helper()
	if a.Say == nil {
		a.Say = func(_ context.Context, text string) (string, error) { return text, nil }
	}
	if a.Chat == nil {
		a.Chat = echo
	}
	o.client = o.Serve(o.t, a)
}

// echo is the Chat of an RPCApp without one.
func echo(_ context.Context, s Stream) error {
	for {
		text, err := s.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(text); err != nil {
			return err
		}
	}
}

func (o *overRPC) start(a app) {
	o.t.Helper()
	o.listen(o.rpcApp(a))
}

// rpcApp returns the app in terms of calls. Both methods answer with its handler.
func (o *overRPC) rpcApp(a app) RPCApp {
	h := a.handler
	if h == nil {
		h = ok
	}
	say := func(ctx context.Context) (string, error) {
		x := &rpcTurn{ctx: ctx, over: o}
		err := h(x)
		return x.text, err
	}

	own := func(f func(turn, *limiter.Admission) error) func(context.Context, *limiter.Admission) error {
		if f == nil {
			return nil
		}
		return func(ctx context.Context, admission *limiter.Admission) error {
			return f(&rpcTurn{ctx: ctx, over: o}, admission)
		}
	}

	r := RPCApp{
		Limiter: a.limiter, Skip: a.skip, Refused: own(a.refused), Failed: own(a.failed),
		SecondConfig: a.secondConfig, Recovered: a.recovered,
		Say: func(ctx context.Context, _ string) (string, error) { return say(ctx) },
		Chat: func(ctx context.Context, s Stream) error {
			text, err := say(ctx)
			if err != nil {
				return err
			}
			return s.Send(text)
		},
	}

	// Those around have no use for their handlers, as calls only pass through them.
	for _, around := range a.around {
		r.Around = append(r.Around, o.rpcApp(around))
	}
	return r
}

// An rpcTurn is a call as a turn.
type rpcTurn struct {
	ctx  context.Context
	over *overRPC
	text string // of the answer
}

func (r *rpcTurn) Context() context.Context { return r.ctx }

func (r *rpcTurn) Request() core.Request { return r.over.Request(r.ctx) }

func (r *rpcTurn) say(text string) error {
	r.text = text
	return nil
}

func (r *rpcTurn) answer(o ownAnswer, text string) error { return r.over.NewError(ownCodes[o], text) }

// ask calls Say with "ok" and the metadata.
func (o *overRPC) ask(ctx context.Context, lines string) Answer {
	o.t.Helper()
	return o.client.Say(ctx, fieldsOf(o.t, lines), "ok")
}

func (o *overRPC) forms() []form {
	same := func(a Answer) Answer { return a }
	return []form{
		{name: "a call", as: same, ownErrors: true, ask: func(fields string) Answer {
			return o.ask(o.t.Context(), fields)
		}},
		{name: "a stream", as: same, ownErrors: true, ask: func(fields string) Answer {
			return o.chat(o.t.Context(), fields).End()
		}},
	}
}

// data is long, so that few messages fill what HTTP/2 lets a server send unread.
var data = strings.Repeat("data", 16<<10)

func (o *overRPC) openEndless(l *limiter.Limiter, end func(context.Context)) (leave func()) {
	o.t.Helper()
	o.listen(RPCApp{Limiter: l, Chat: func(ctx context.Context, s Stream) error {
		if end != nil {
			defer end(ctx)
		}

		// Sending fails when the client is away and what HTTP/2 lets the server send is used up.
		for {
			if err := s.Send(data); err != nil {
				return err
			}
		}
	}})

	ctx, leave := context.WithCancel(o.t.Context())
	if _, err := o.chat(ctx, "").Recv(); err != nil {
		o.t.Fatal(err)
	}
	return leave
}

// chat calls Chat with the metadata.
func (o *overRPC) chat(ctx context.Context, lines string) ClientStream {
	o.t.Helper()
	s, err := o.client.Chat(ctx, fieldsOf(o.t, lines))
	if err != nil {
		o.t.Fatal(err)
	}
	return s
}

// talk sends a text and receives the answer to it.
func (o *overRPC) talk(s ClientStream, text string) {
	o.t.Helper()
	if err := s.Send(text); err != nil {
		o.t.Fatal(err)
	}
	if got, err := s.Recv(); got != text || err != nil {
		o.t.Fatalf("received %q, %v; want %q", got, err, text)
	}
}

// closeSend ends what the client sends.
func (o *overRPC) closeSend(s ClientStream) {
	o.t.Helper()
	if err := s.CloseSend(); err != nil {
		o.t.Error(err)
	}
}

func (o *overRPC) pkg() string             { return o.Package }
func (o *overRPC) userKey() core.KeyFunc   { return o.User }
func (o *overRPC) noRequest() core.Request { return o.NoRequest }
func (o *overRPC) blindToLeaving() bool    { return false }
