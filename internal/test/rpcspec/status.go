package rpcspec

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/internal/rpc"
)

var status = []spec{
	{"rules get the code that the client sees", codeSeen},
	{"only failed logins count", login},
}

// ending is a way in which a handler ends.
type ending struct {
	name string
	end  func(*bench) error
	want Answer
}

// endings returns every code, an error without one, and a panic.
func endings() []ending {
	list := []ending{
		{"a return", func(*bench) error { return nil }, text("ok")},
		{"an error", func(*bench) error { return errors.New("boom") }, failed(rpc.Unknown, "boom")},
		{"a panic", func(*bench) error { panic("boom") }, failed(rpc.Internal, "panic")},
	}
	for c := rpc.Code(1); c <= 16; c++ {
		list = append(list, ending{fmt.Sprint("code ", c), func(b *bench) error { return b.NewError(c, "no") }, failed(c, "no")})
	}
	return list
}

func codeSeen(b *bench) {
	codes, ends := make(chan rpc.Code, 1), make(chan func(*bench) error, 1)
	r := b.rule("a", "1000/10s fixed-window")
	r.RefundIf = b.RefundIf(func(c rpc.Code) bool {
		codes <- c
		return false
	})
	b.serve(App{
		Limiter: b.limiter(r),
		Say:     func(_ context.Context, text string) (string, error) { return text, (<-ends)(b) },
		Chat: func(_ context.Context, s Stream) error {
			if err := s.Send("ok"); err != nil {
				return err
			}
			return (<-ends)(b)
		},
	})
	for _, e := range endings() {
		ends <- e.end
		got := b.ask("")
		got.Pairs = nil
		b.equal(got, e.want, "%s", e.name)
		if code := await(b, "a code", codes); code != got.Code {
			b.Errorf("%s: the rule got %d, the client %d", e.name, code, got.Code)
		}
		ends <- e.end
		s := b.chat(b.Context(), "")
		if text, err := s.Recv(); text != "ok" || err != nil {
			b.Errorf("%s: received %q, %v", e.name, text, err)
		}
		got = s.End()
		if code := await(b, "a code", codes); code != got.Code || code != e.want.Code {
			b.Errorf("%s of a stream: the rule got %d, the client %d", e.name, code, got.Code)
		}
	}
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		ends <- func(*bench) error { return err }
		got := b.ask("")
		if code := await(b, "a code", codes); code != got.Code || code == rpc.OK {
			b.Errorf("%v: the rule got %d, the client %d", err, code, got.Code)
		}
	}
}

// login refunds every attempt that did not fail, before the client has its answer.
func login(b *bench) {
	r := b.rule("a", "5/10s fixed-window")
	r.RefundIf = b.RefundIf(func(c rpc.Code) bool { return c == rpc.OK })
	ends := make(chan ending, 1)
	b.serve(App{Limiter: b.limiter(r), Say: func(_ context.Context, text string) (string, error) { return text, (<-ends).end(b) }})
	list := endings()
	rows := []struct {
		ending
		left int // while it is being answered
	}{
		{list[0], 4}, {list[0], 4}, {list[1], 4}, {list[0], 3}, {list[2], 3}, {list[0], 2}, {list[3], 2}, {list[0], 1},
		{list[len(list)-1], 1}, {list[0], 0}, {list[4], 0},
	}
	for _, row := range rows {
		ends <- row.ending
		b.steps(step{0, "", row.want.with(rate(0, 5, row.left, 10))})
	}
	b.steps(step{0, "", refusal("a", ten).with(rate(0, 5, 0, 10))})
}
