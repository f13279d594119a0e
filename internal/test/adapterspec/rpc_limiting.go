package adapterspec

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rpc"
)

var rpcCosts = []spec{
	{"a call that costs more than the limit can hold gets no RetryInfo", onRPC(impossible)},
	{"a rule may count by the message", onRPC(byMessage)},
	{"the message of another framework is empty", onRPC(noMessage)},
}

var rpcLimiting = []spec{
	{"a stream counts once, and is refused like a call", onRPC(streams)},
	{"a call is refused at once if its deadline comes before its turn", onRPC(tooLate)},
	{"a stream in both directions holds the lease until it ends", onRPC(heldByStream)},
	{"a limiter that is met twice counts a stream of messages once", onRPC(twiceStreamed)},
}

func streams(b *rpcBench) {
	b.serve(RPCApp{Limiter: b.limiter(b.rule("a", "2/10s fixed-window"))})
	s := b.chat(b.Context(), "")
	for _, text := range []string{"one", "two", "three"} {
		b.talk(s, text)
	}
	b.closeSend(s)
	b.equal(s.End(), b.passed("").with(rate(0, 2, 1, 10)), "a stream of three messages")

	s = b.chat(b.Context(), "")
	b.closeSend(s)
	b.equal(s.End(), b.passed("").with(rate(0, 2, 0, 10)), "a stream without messages")

	// Calls and streams share the count.
	b.equal(b.chat(b.Context(), "").End(), b.refusal("a", ten).with(rate(0, 2, 0, 10)), "the third stream")
	b.steps(step{0, "", b.refusal("a", ten).with(rate(0, 2, 0, 10))})
}

func impossible(b *rpcBench) {
	r := b.rule("a", "2/10s fixed-window")
	r.Cost = func(core.Request) int64 { return 3 }
	b.serve(RPCApp{Limiter: b.limiter(r)})
	want := callError(rpc.ResourceExhausted, `the request asks for more than "a" can ever hold`)
	want.Rules = []string{"a"}
	b.steps(step{0, "", want.with(rate(0, 2, 2, 0))})
}

func tooLate(b *rpcBench) {
	l := b.patient()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	got := b.client.Say(ctx, nil, "ok")
	b.equal(got.withoutLimits(), b.refusal("a", 20*time.Minute), "a call of a minute")
	b.wantWait(l, 20*time.Minute)
}

func heldByStream(b *rpcBench) {
	b.serve(RPCApp{Limiter: b.one()})
	for range 2 {
		s := b.chat(b.Context(), "")
		for range 2 {
			b.talk(s, "hello")
			b.steps(step{0, "", b.busy()})
		}

		// The handler returns when the client has sent its last message.
		b.closeSend(s)
		b.equal(s.End(), b.passed("").with(leaseHeaders(0)), "the stream")
		b.released()
		b.steps(step{0, "", b.free()})
		b.released()
	}
}

func twiceStreamed(b *rpcBench) {
	l := b.limiter(b.rule("a", "2/10s fixed-window"))
	b.serve(RPCApp{Around: []RPCApp{{Limiter: l}}, Limiter: l})
	s := b.chat(b.Context(), "")
	b.talk(s, "one")
	b.closeSend(s)
	b.equal(s.End(), b.passed("").with(rate(0, 2, 1, 10)), "a stream")
}
