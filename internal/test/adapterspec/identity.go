package adapterspec

import (
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
)

var identity = []spec{
	{"no field changes the caller", forgedFields},
	{"behind a proxy the last line of X-Forwarded-For counts", lastLine},
	{"callers on one connection have keys of their own", oneConnection},
	{"a key function may look at the framework's request", nativeKey},
	{"the host is a key", host},
}

func forgedFields(b *bench) {
	b.serve(app{limiter: b.limiter(b.rule("a", "1/10s fixed-window"))})
	b.steps(step{0, "", b.passed("ok").with(rate(0, 1, 0, 10))})
	for _, fields := range b.forged() {
		b.steps(step{0, fields, b.refusal("a", ten).with(rate(0, 1, 0, 10))})
	}
}

func lastLine(b *bench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = keyfuncs.MustForwardedIP(keyfuncs.Proxies{Trusted: []string{"127.0.0.0/8", "198.51.100.200"}})
	b.serve(app{limiter: b.limiter(r)})

	// The client is 203.0.113.9, whatever it has written before the line of the proxy.
	passes, refused := b.passed("ok").with(rate(0, 1, 0, 10)), b.refusal("a", ten).with(rate(0, 1, 0, 10))
	b.steps(
		step{0, "X-Forwarded-For: 203.0.113.1\nX-Forwarded-For: 203.0.113.9", passes},
		step{0, "X-Forwarded-For: 203.0.113.2\nX-Forwarded-For: 203.0.113.9", refused},
		step{0, "x-forwarded-for: 203.0.113.9", refused},
		step{0, "X-Forwarded-For: 203.0.113.3, 203.0.113.9\nX-Forwarded-For: 198.51.100.200", refused},
		step{0, "X-Forwarded-For: 203.0.113.9\nX-Forwarded-For: 203.0.113.1", passes},
	)
}

// oneConnection sends requests that some frameworks keep in the same memory.
func oneConnection(b *bench) {
	r := b.rule("a", "2/10s fixed-window")
	r.Key = keyfuncs.Header("X-User")
	b.serve(app{limiter: b.limiter(r)})
	one, two := b.passed("ok").with(rate(0, 2, 1, 10)), b.passed("ok").with(rate(0, 2, 0, 10))
	for _, want := range []Answer{one, two, b.refusal("a", ten).with(rate(0, 2, 0, 10))} {
		for _, user := range []string{"alice", "bobby", "carol"} {
			b.steps(step{0, "X-User: " + user, want})
		}
	}
}

func nativeKey(b *bench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = b.userKey()
	b.serve(app{limiter: b.limiter(r)})
	passes, refused := b.passed("ok").with(rate(0, 1, 0, 10)), b.refusal("a", ten).with(rate(0, 1, 0, 10))
	b.steps(
		step{0, "X-User: alice", passes},
		step{0, "X-User: alice", refused},
		step{0, "X-User: bobby", passes},
		step{0, "X-User: alice\nX-Exempt: 1", b.passed("ok")},
		step{0, "", passes},
		step{0, "", refused},
	)

	// The adapter cannot look into what is not its own: those share the empty key.
	for _, r := range []core.Request{nil, foreign{}} {
		if key, ok := b.userKey()(r); key != "" || !ok {
			b.Errorf("the request %v of another framework has the key %q, %t", r, key, ok)
		}
	}
}

// foreign is a request of no framework.
type foreign struct{ core.Request }

func host(b *bench) {
	r := b.rule("a", "9/10s fixed-window")
	r.Key = keyfuncs.Host
	l := b.limiter(r)
	b.serve(app{limiter: l})
	b.send("")
	b.wantLeft(l, 8)
}
