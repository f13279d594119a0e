package adapterspec

import (
	"context"

	"github.com/headgate/headgate/internal/rpc"
)

var rpcStatus = []spec{{"rules get the code that the client sees", onRPC(codeSeen)}}

// everyEnding returns every code, an error without one, and a panic.
func (o *overRPC) everyEnding() []ending {
	list := []ending{byReturn(o), byError(o), byPanic(o)}
	for c := rpc.Code(1); c <= 16; c++ {
		list = append(list, o.byCode(c))
	}
	return list
}

func codeSeen(b *rpcBench) {
	codes, ends := make(chan rpc.Code, 1), make(chan handler, 1)
	r := b.rule("a", "1000/10s fixed-window")
	r.RefundIf = b.RefundIf(func(c rpc.Code) bool {
		codes <- c
		return false
	})

	// A stream has sent a message when it ends.
	b.serve(RPCApp{
		Limiter: b.limiter(r),
		Say:     func(_ context.Context, text string) (string, error) { return text, (<-ends)(&rpcTurn{}) },
		Chat: func(_ context.Context, s Stream) error {
			if err := s.Send("ok"); err != nil {
				return err
			}
			return (<-ends)(&rpcTurn{})
		},
	})

	for _, e := range b.everyEnding() {
		ends <- e.handler
		got := b.send("")
		got.Header = nil
		b.equal(got, e.want, "%s", e.name)
		if code := await(b, "a code", codes); code != got.Code {
			b.Errorf("%s: the rule got %d, the client %d", e.name, code, got.Code)
		}

		// The answer of a stream has begun when the handler ends.
		ends <- e.handler
		s := b.chat(b.Context(), "")
		if text, err := s.Recv(); text != "ok" || err != nil {
			b.Errorf("%s: received %q, %v", e.name, text, err)
		}
		got = s.End()
		if code := await(b, "a code", codes); code != got.Code || code != e.want.Code {
			b.Errorf("%s of a stream: the rule got %d, the client %d", e.name, code, got.Code)
		}
	}

	// The code of an error of a context is the framework's choice, but for OK.
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		ends <- func(turn) error { return err }
		got := b.send("")
		if code := await(b, "a code", codes); code != got.Code || code == rpc.OK {
			b.Errorf("%v: the rule got %d, the client %d", err, code, got.Code)
		}
	}
}
