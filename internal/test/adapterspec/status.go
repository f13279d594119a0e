package adapterspec

var status = []spec{{"only failed logins count", login}}

// login refunds every attempt that did not fail, before the client has its answer.
func login(b *bench) {
	r := b.rule("a", "5/10s fixed-window")
	r.RefundIf = b.refundIf(success)
	next := make(chan ending, 1)
	b.serve(app{limiter: b.limiter(r), handler: func(x turn) error { return (<-next).handler(x) }})

	try := func(e ending, left int) {
		b.Helper()
		next <- e
		b.steps(step{0, "", e.want.with(rate(0, 5, left, 10))})
	}

	// Headers show what is left while the answer is on its way, before a refund.
	try(byReturn(b), 4)
	for i, e := range b.failures() {
		try(byReturn(b), 4-i)
		try(e, 4-i)
	}
	b.steps(step{0, "", b.refusal("a", ten).with(rate(0, 5, 0, 10))})
}
