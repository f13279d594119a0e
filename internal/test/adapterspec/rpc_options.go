package adapterspec

import (
	"sync/atomic"

	"github.com/headgate/headgate/limiter"
)

var rpcOptions = []spec{{"templates of the limiter are called for their delays", onRPC(templatesCalled)}}

// templatesCalled has templates whose status and body a call has no use for.
func templatesCalled(b *rpcBench) {
	var refused, failed atomic.Int64
	count := func(n *atomic.Int64) limiter.Template {
		return func(*limiter.Admission) limiter.Answer {
			n.Add(1)
			return limiter.Answer{Status: 200, Body: []byte("no")}
		}
	}
	rules := []limiter.Rule{b.rule("a", "1/10s fixed-window")}
	b.serve(RPCApp{Limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: rules,
		Refused: count(&refused), Failed: count(&failed)})})

	b.steps(
		step{0, "", b.passed("ok").with(rate(0, 1, 0, 10))},
		step{0, "", b.refusal("a", ten).with(rate(0, 1, 0, 10))},
	)
	b.store.broken.Store(true)
	b.steps(step{0, "", b.failure(second)})

	// A template may hold its answer up, as a tarpit does.
	if refused.Load() != 1 || failed.Load() != 1 {
		b.Errorf("the templates were called %d and %d times", refused.Load(), failed.Load())
	}
}
