package adapterspec

import (
	"io"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

var rpcMessages = []spec{
	{"each message of a stream counts where that is asked for", onRPC(eachMessage)},
	{"a message costs what its rule says", onRPC(messageCost)},
	{"a message waits for its turn", onRPC(messageWaits)},
	{"messages pass or not while the store fails", onRPC(messagesFail)},
}

// eachMessage has a limit of two streams, and of three messages.
func eachMessage(b *rpcBench) {
	m := b.limiter(b.rule("m", "3/10s fixed-window"))
	b.serve(RPCApp{Limiter: b.limiter(b.rule("a", "2/10s fixed-window")), Messages: m})
	s := b.chat(b.Context(), "")
	for _, text := range []string{"one", "two", "three"} {
		b.talk(s, text)
	}

	// The headers of the stream were sent before this refusal, so that only the error is compared.
	if err := s.Send("four"); err != nil {
		b.Error(err)
	}
	got, want := s.End(), b.refusal("m", ten)
	got.Header, want.Header = nil, nil
	b.equal(got, want, "the fourth message")
	b.steps(step{0, "", b.passed("ok").with(rate(0, 2, 0, 10))})
	b.wantLeft(m, 0)
}

func messageCost(b *rpcBench) {
	r := b.rule("m", "5/10s fixed-window")
	r.Cost = func(r core.Request) int64 { return int64(len(b.Message(r))) }
	l := b.limiter(r)
	b.serve(RPCApp{Limiter: b.limiter(b.rule("a", "9/10s fixed-window")), Messages: l})
	s := b.chat(b.Context(), "")
	b.talk(s, "abc")
	b.wantLeft(l, 2)
	b.talk(s, "ab")
	b.wantLeft(l, 0)
	b.closeSend(s)
	b.equal(s.End(), b.passed("").with(rate(0, 9, 8, 10)), "the stream")
}

func messageWaits(b *rpcBench) {
	r := b.rule("m", "1/10m")
	r.OnLimit = limiter.Wait(core.MaxBooking)
	l := b.limiter(r)
	b.serve(RPCApp{Limiter: b.limiter(b.rule("a", "9/10s fixed-window")), Messages: l})

	s := b.chat(b.Context(), "")
	b.talk(s, "one")
	b.reserve(l) // or else no message books far ahead
	await(b, "the reservation", b.store.booked)
	if err := s.Send("two"); err != nil {
		b.Error(err)
	}

	// Closing the limiter ends the wait of the second message.
	await(b, "the booking", b.store.booked)
	l.Close()
	if got := s.End(); got.Code != rpc.ResourceExhausted || got.Rules[0] != "m" {
		b.Errorf("got\n%s", got)
	}
}

func messagesFail(b *rpcBench) {
	for _, mode := range []limiter.FailureMode{limiter.FailOpen, limiter.FailClosed} {
		b.row(mode.String(), func(b *rpcBench) {
			rules := []limiter.Rule{b.rule("m", "3/10s fixed-window")}
			m := b.configured(limiter.Config{Rules: rules, OnStoreError: mode})
			b.serve(RPCApp{Limiter: b.limiter(b.rule("a", "9/10s fixed-window")), Messages: m})
			s := b.chat(b.Context(), "")
			b.talk(s, "one")

			// The first message has passed, so the stream is open when the store fails.
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
