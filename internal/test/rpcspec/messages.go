package rpcspec

import (
	"io"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

var messages = []spec{
	{"each message of a stream counts where that is asked for", eachMessage},
	{"a message costs what its rule says", messageCost},
	{"a message waits for its turn", messageWaits},
	{"messages pass or not while the store fails", messagesFail},
}

// eachMessage has a limit of two streams, and of three messages.
func eachMessage(b *bench) {
	m := b.limiter(b.rule("m", "3/10s fixed-window"))
	b.serve(App{Limiter: b.limiter(b.rule("a", "2/10s fixed-window")), Messages: m})
	s := b.chat(b.Context(), "")
	for _, text := range []string{"one", "two", "three"} {
		b.say(s, text)
	}
	if err := s.Send("four"); err != nil {
		b.Error(err)
	}
	got := s.End()
	got.Pairs = nil
	want := refusal("m", ten)
	want.Pairs = nil
	b.equal(got, want, "the fourth message")
	b.steps(step{0, "", text("ok").with(rate(0, 2, 0, 10))})
	b.wantLeft(m, 0)
}

func messageCost(b *bench) {
	r := b.rule("m", "5/10s fixed-window")
	r.Cost = func(r core.Request) int64 { return int64(len(b.Message(r))) }
	l := b.limiter(r)
	b.serve(App{Limiter: b.limiter(b.rule("a", "9/10s fixed-window")), Messages: l})
	s := b.chat(b.Context(), "")
	b.say(s, "abc")
	b.wantLeft(l, 2)
	b.say(s, "ab")
	b.wantLeft(l, 0)
	if err := s.CloseSend(); err != nil {
		b.Error(err)
	}
	b.equal(s.End(), text("").with(rate(0, 9, 8, 10)), "the stream")
}

func messageWaits(b *bench) {
	r := b.rule("m", "1/10m")
	r.OnLimit = limiter.Wait(core.MaxBooking)
	l := b.limiter(r)
	b.serve(App{Limiter: b.limiter(b.rule("a", "9/10s fixed-window")), Messages: l})
	s := b.chat(b.Context(), "")
	b.say(s, "one")
	b.reserve(l) // or else no message books far ahead
	await(b, "the reservation", b.store.booked)
	if err := s.Send("two"); err != nil {
		b.Error(err)
	}
	await(b, "the booking", b.store.booked)
	l.Close()
	if got := s.End(); got.Code != rpc.ResourceExhausted || got.Rules[0] != "m" {
		b.Errorf("got\n%s", got)
	}
}

func messagesFail(b *bench) {
	for _, mode := range []limiter.FailureMode{limiter.FailOpen, limiter.FailClosed} {
		b.row(mode.String(), func(b *bench) {
			m := b.configured(limiter.Config{Rules: []limiter.Rule{b.rule("m", "3/10s fixed-window")}, OnStoreError: mode})
			b.serve(App{Limiter: b.limiter(b.rule("a", "9/10s fixed-window")), Messages: m})
			s := b.chat(b.Context(), "")
			b.say(s, "one")
			b.store.broken.Store(true)
			if err := s.Send("two"); err != nil {
				b.Error(err)
			}
			got, err := s.Recv()
			if mode == limiter.FailOpen {
				if got != "two" || err != nil {
					b.Errorf("received %q, %v", got, err)
				}
				return
			}
			if got := s.End(); err == nil || err == io.EOF || got.Code != rpc.Unavailable {
				b.Errorf("received %v, ended with\n%s", err, got)
			}
		})
	}
}
