package adapterspec

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

var rpcIdentity = []spec{
	{"each method is a route", onRPC(routes)},
	{"policies apply to methods and to services", onRPC(policies)},
	{"rules see the call as it is", onRPC(callSeen)},
	{"hostile metadata has keys like any other", onRPC(hostile)},
}

func noMessage(b *rpcBench) {
	for _, r := range []core.Request{nil, foreign{}} {
		if got := b.Message(r); got != "" {
			b.Errorf("the request %v of another framework has the message %q", r, got)
		}
	}
}

func routes(b *rpcBench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = keyfuncs.Route
	l := b.limiter(r)
	b.serve(RPCApp{Limiter: l})
	b.steps(
		step{0, "", b.passed("ok").with(rate(0, 1, 0, 10))},
		step{0, "", b.refusal("a", ten).with(rate(0, 1, 0, 10))},
	)

	// The other method has a unit of its own.
	for range 2 {
		s := b.chat(b.Context(), "")
		_ = s.CloseSend() // fails where the server has refused the stream already
		s.End()
	}

	for _, route := range []string{SayMethod, ChatMethod} {
		if list, err := l.Peek(b.Context(), route); err != nil || list[0].Decision.Remaining != 0 {
			b.Errorf("%s: %+v, %v", route, list, err)
		}
	}
}

// policies has one for a method, one for its service, and one for another.
func policies(b *rpcBench) {
	of := func(name, path, limit string) policy.Policy {
		return policy.Policy{Name: name, Apps: []string{"app"}, Limit: core.MustParseLimit(limit), Key: "ip",
			Match: policy.Match{Path: path}}
	}
	compiled, err := policy.Compile("app", []policy.Policy{
		of("method", SayMethod, "2/10s fixed-window"),
		of("service", "/headgate.test.Echo/", "3/10s fixed-window"),
		of("other", "/headgate.test.Other/", "1/10s fixed-window"),
	}, policy.Bindings{})
	if err != nil {
		b.Fatal(err)
	}

	b.serve(RPCApp{Limiter: b.configured(limiter.Config{Rules: compiled.Rules(), Headers: limiter.NoHeaders})})

	// A call that the method refuses takes no unit of the service, which has one left.
	b.steps(step{0, "", b.passed("ok")}, step{0, "", b.passed("ok")}, step{0, "", b.refusal("method", ten)})
	for _, want := range []Answer{b.passed(""), b.refusal("service", ten)} {
		s := b.chat(b.Context(), "")
		_ = s.CloseSend() // fails where the server has refused the stream already
		b.equal(s.End(), want, "a stream")
	}
}

func byMessage(b *rpcBench) {
	r := b.rule("a", "5/10s fixed-window")
	r.Cost = func(r core.Request) int64 { return int64(len(b.Message(r))) }
	l := b.limiter(r)
	b.serve(RPCApp{Limiter: l})

	// A message of three finds two left, and passes no more.
	for _, row := range []struct {
		text string
		left int64
	}{{"abc", 2}, {"abc", 2}, {"", 2}, {"ab", 0}} {
		b.client.Say(b.Context(), nil, row.text)
		b.wantLeft(l, row.left)
	}
}

// callSeen checks all that a rule sees of a call with forged metadata.
func callSeen(b *rpcBench) {
	views := make(chan string, 1)
	r := b.rule("a", "9/10s fixed-window")
	r.Key = func(r core.Request) (string, bool) {
		views <- fmt.Sprintf("%s %s %s %s %q %q %q %t", r.Method(), r.Path(), r.Route(), r.RemoteAddr(),
			r.Header("Host"), r.Header("X-Forwarded-For"), r.Header("X-None"), r.Context() != nil)
		return "", true
	}
	b.serve(RPCApp{Limiter: b.limiter(r)})

	const lines = "x-forwarded-for: 6.6.6.6\nx-forwarded-for: 7.7.7.7"
	server := "127.0.0.1"
	for _, method := range []string{SayMethod, ChatMethod} {
		if method == SayMethod {
			b.send(lines)
		} else {
			s := b.chat(b.Context(), lines)
			b.closeSend(s)
			s.End()
		}

		// The host is the server's address, of which the port is not known here.
		got := await(b, "a key", views)
		want := fmt.Sprintf(`POST %s %s %s [`, method, method, b.client.Addr())
		const end = ` ["6.6.6.6" "7.7.7.7"] [] true`
		if !strings.HasPrefix(got, want+`"`+server) || !strings.HasSuffix(got, end) {
			b.Errorf("got %s, want %s…%s", got, want, end)
		}
	}
}

// hostile sends values that are binary, long, repeated and empty. Each caller has a count,
// and none shares that of another.
func hostile(b *rpcBench) {
	long := strings.Repeat("k", 1<<20)
	plain, binary := b.rule("a", "1/10s fixed-window"), b.rule("b", "1/10s fixed-window")
	plain.Key = func(r core.Request) (string, bool) {
		key, _ := keyfuncs.Header("X-Key")(r)
		return key, len(r.Header("X-Key")) > 0
	}
	binary.Key = func(r core.Request) (string, bool) {
		key, _ := keyfuncs.Header("X-Key-Bin")(r)
		return key, len(r.Header("X-Key-Bin")) > 0
	}

	// Each value passes once and is refused when it comes again.
	l := b.configured(limiter.Config{Rules: []limiter.Rule{plain, binary}, Headers: limiter.NoHeaders})
	b.serve(RPCApp{Limiter: l})

	for name, metadata := range map[string][]string{
		"long": {"x-key", long}, "long with another end": {"x-key", long + "x"},
		"repeated": {"x-key", "a", "x-key", "b"}, "braces": {"x-key", "{a}:b"}, "quotes": {"x-key", `"; drop`},
		"binary": {"x-key-bin", "\x00\xff\r\n"}, "binary with another end": {"x-key-bin", "\x00\xff\r\n\x00"},
		"long and binary": {"x-key-bin", strings.Repeat("\xfe", 1<<20)},
	} {
		if got := b.client.Say(b.Context(), metadata, "ok"); got.String() != b.passed("ok").String() {
			b.Errorf("%s: got\n%.300s", name, got)
		}
		if got := b.client.Say(b.Context(), metadata, "ok"); got.RetryAfter != ten || len(got.Rules) != 1 {
			b.Errorf("%s again: got\n%.300s", name, got)
		}
	}
}
