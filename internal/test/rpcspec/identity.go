package rpcspec

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

var identity = []spec{
	{"no metadata changes the caller", forged},
	{"behind a proxy the last line of X-Forwarded-For counts", lastLine},
	{"callers on one connection have keys of their own", oneConnection},
	{"a key function may look at the framework's call", nativeKey},
	{"each method is a route", routes},
	{"policies apply to methods and to services", policies},
	{"the host is a key", host},
	{"a rule may count by the message", byMessage},
	{"rules see the call as it is", seen},
	{"hostile metadata has keys like any other", hostile},
}

func forged(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "1/10s fixed-window"))})
	b.steps(step{0, "", text("ok").with(rate(0, 1, 0, 10))})
	for _, lines := range []string{
		"x-forwarded-for: 198.51.100.1", "x-forwarded-for: 198.51.100.2\nx-forwarded-for: 198.51.100.3",
		"x-forwarded-for: 127.0.0.1, 198.51.100.4", "x-real-ip: 198.51.100.5", "true-client-ip: 198.51.100.7",
		`forwarded: for="[2001:db8::1]:80"`, "via: 1.1 198.51.100.11", "x-original-url: /grpc.health.v1.Health/Check",
		"x-ratelimit-remaining: 100", "ratelimit: \"a\";r=100", "retry-after: 0", "grpc-previous-rpc-attempts: 1",
	} {
		b.steps(step{0, lines, refusal("a", ten).with(rate(0, 1, 0, 10))})
	}
}

func lastLine(b *bench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = keyfuncs.MustForwardedIP(keyfuncs.Proxies{Trusted: []string{"127.0.0.0/8", "198.51.100.200"}})
	b.serve(App{Limiter: b.limiter(r)})
	passes, refused := text("ok").with(rate(0, 1, 0, 10)), refusal("a", ten).with(rate(0, 1, 0, 10))
	b.steps(
		step{0, "x-forwarded-for: 203.0.113.1\nx-forwarded-for: 203.0.113.9", passes},
		step{0, "x-forwarded-for: 203.0.113.2\nx-forwarded-for: 203.0.113.9", refused},
		step{0, "X-Forwarded-For: 203.0.113.9", refused},
		step{0, "x-forwarded-for: 203.0.113.3, 203.0.113.9\nx-forwarded-for: 198.51.100.200", refused},
		step{0, "x-forwarded-for: 203.0.113.9\nx-forwarded-for: 203.0.113.1", passes},
	)
}

func oneConnection(b *bench) {
	r := b.rule("a", "2/10s fixed-window")
	r.Key = keyfuncs.Header("X-User")
	b.serve(App{Limiter: b.limiter(r)})
	one, two := text("ok").with(rate(0, 2, 1, 10)), text("ok").with(rate(0, 2, 0, 10))
	for _, want := range []Answer{one, two, refusal("a", ten).with(rate(0, 2, 0, 10))} {
		for _, user := range []string{"alice", "bobby", "carol"} {
			b.steps(step{0, "x-user: " + user, want})
		}
	}
}

func nativeKey(b *bench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = b.User
	b.serve(App{Limiter: b.limiter(r)})
	passes, refused := text("ok").with(rate(0, 1, 0, 10)), refusal("a", ten).with(rate(0, 1, 0, 10))
	b.steps(
		step{0, "x-user: alice", passes},
		step{0, "x-user: alice", refused},
		step{0, "x-user: bobby", passes},
		step{0, "x-user: alice\nx-exempt: 1", text("ok")},
		step{0, "", passes},
		step{0, "", refused},
	)
	for _, r := range []core.Request{nil, foreign{}} {
		if key, ok := b.User(r); key != "" || !ok {
			b.Errorf("the request %v of another framework has the key %q, %t", r, key, ok)
		}
		if got := b.Message(r); got != "" {
			b.Errorf("the request %v of another framework has the message %q", r, got)
		}
	}
}

// foreign is a request of no framework.
type foreign struct{ core.Request }

func routes(b *bench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = keyfuncs.Route
	l := b.limiter(r)
	b.serve(App{Limiter: l})
	b.steps(step{0, "", text("ok").with(rate(0, 1, 0, 10))}, step{0, "", refusal("a", ten).with(rate(0, 1, 0, 10))})
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
func policies(b *bench) {
	of := func(name, path, limit string) policy.Policy {
		return policy.Policy{Name: name, Apps: []string{"app"}, Limit: core.MustParseLimit(limit), Key: "ip", Match: policy.Match{Path: path}}
	}
	compiled, err := policy.Compile("app", []policy.Policy{of("method", SayMethod, "2/10s fixed-window"),
		of("service", "/headgate.test.Echo/", "3/10s fixed-window"), of("other", "/headgate.test.Other/", "1/10s fixed-window")}, policy.Bindings{})
	if err != nil {
		b.Fatal(err)
	}
	b.serve(App{Limiter: b.configured(limiter.Config{Rules: compiled.Rules(), Headers: limiter.NoHeaders})})
	b.steps(step{0, "", text("ok")}, step{0, "", text("ok")}, step{0, "", refusal("method", ten)})
	for _, want := range []Answer{text(""), refusal("service", ten)} {
		s := b.chat(b.Context(), "")
		_ = s.CloseSend() // fails where the server has refused the stream already
		b.equal(s.End(), want, "a stream")
	}
}

func host(b *bench) {
	r := b.rule("a", "9/10s fixed-window")
	r.Key = keyfuncs.Host
	l := b.limiter(r)
	b.serve(App{Limiter: l})
	b.ask("")
	b.wantLeft(l, 8)
}

func byMessage(b *bench) {
	r := b.rule("a", "5/10s fixed-window")
	r.Cost = func(r core.Request) int64 { return int64(len(b.Message(r))) }
	l := b.limiter(r)
	b.serve(App{Limiter: l})
	for _, row := range []struct {
		text string
		left int64
	}{{"abc", 2}, {"abc", 2}, {"", 2}, {"ab", 0}} {
		b.client.Say(b.Context(), nil, row.text)
		b.wantLeft(l, row.left)
	}
}

// seen checks all that a rule sees of a call with forged metadata.
func seen(b *bench) {
	views := make(chan string, 1)
	r := b.rule("a", "9/10s fixed-window")
	r.Key = func(r core.Request) (string, bool) {
		views <- fmt.Sprintf("%s %s %s %s %q %q %q %t", r.Method(), r.Path(), r.Route(), r.RemoteAddr(),
			r.Header("Host"), r.Header("X-Forwarded-For"), r.Header("X-None"), r.Context() != nil)
		return "", true
	}
	b.serve(App{Limiter: b.limiter(r)})
	const lines = "x-forwarded-for: 6.6.6.6\nx-forwarded-for: 7.7.7.7"
	server := "127.0.0.1"
	for _, method := range []string{SayMethod, ChatMethod} {
		if method == SayMethod {
			b.ask(lines)
		} else {
			s := b.chat(b.Context(), lines)
			if err := s.CloseSend(); err != nil {
				b.Error(err)
			}
			s.End()
		}
		got := await(b, "a key", views)
		want := fmt.Sprintf(`POST %s %s %s [`, method, method, b.client.Addr())
		const rest = ` ["6.6.6.6" "7.7.7.7"] [] true`
		if !strings.HasPrefix(got, want+`"`+server) || !strings.HasSuffix(got, rest) {
			b.Errorf("got %s, want %s…%s", got, want, rest)
		}
	}
}

// hostile sends values that are binary, long, repeated and empty. Each caller has a count,
// and none shares that of another.
func hostile(b *bench) {
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
	l := b.configured(limiter.Config{Rules: []limiter.Rule{plain, binary}, Headers: limiter.NoHeaders})
	b.serve(App{Limiter: l})
	for name, metadata := range map[string][]string{
		"long": {"x-key", long}, "long with another end": {"x-key", long + "x"},
		"repeated": {"x-key", "a", "x-key", "b"}, "braces": {"x-key", "{a}:b"}, "quotes": {"x-key", `"; drop`},
		"binary": {"x-key-bin", "\x00\xff\r\n"}, "binary with another end": {"x-key-bin", "\x00\xff\r\n\x00"},
		"long and binary": {"x-key-bin", strings.Repeat("\xfe", 1<<20)},
	} {
		if got := b.client.Say(b.Context(), metadata, "ok"); got.String() != text("ok").String() {
			b.Errorf("%s: got\n%.300s", name, got)
		}
		if got := b.client.Say(b.Context(), metadata, "ok"); got.RetryAfter != ten || len(got.Rules) != 1 {
			b.Errorf("%s again: got\n%.300s", name, got)
		}
	}
}
