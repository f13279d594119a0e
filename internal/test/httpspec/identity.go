package httpspec

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

var identity = []spec{
	{"no header changes the caller", forgedHeaders},
	{"behind a proxy the last line of X-Forwarded-For counts", lastLine},
	{"callers on one connection have keys of their own", oneConnection},
	{"a key function may look at the framework's context", nativeKey},
	{"HEAD counts as GET", headCounts},
	{"the host is a key", host},
	{"one session has one key, however its cookie is written", session},
	{"the key of a host is that of the host which handlers read", hostRead},
	{"rules see the request as it is", seen},
	{"no spelling of a path gets past the limit of its route", routeSpellings},
	{"no spelling of a path gets past the limit of the path", pathSpellings},
}

func forgedHeaders(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "1/10s fixed-window"))})
	b.steps(step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))})
	for _, lines := range []string{
		"X-Forwarded-For: 198.51.100.1",
		"X-Forwarded-For: 198.51.100.2\nX-Forwarded-For: 198.51.100.3",
		"X-Forwarded-For: 127.0.0.1, 198.51.100.4",
		"X-Real-Ip: 198.51.100.5", "X-Real-Ip: 198.51.100.5\nX-Real-Ip: 198.51.100.6",
		"True-Client-Ip: 198.51.100.7", "Cf-Connecting-Ip: 198.51.100.8",
		"X-Client-Ip: 198.51.100.9", "X-Cluster-Client-Ip: 198.51.100.10",
		`Forwarded: for="[2001:db8::1]:80"`, "Via: 1.1 198.51.100.11",
		"X-Forwarded-Host: b.example", "X-Original-Url: /free", "X-Rewrite-Url: /free",
		"X-Http-Method-Override: OPTIONS", "Access-Control-Request-Method: GET\nOrigin: https://a.example",
		"X-Ratelimit-Remaining: 100", "Ratelimit: \"a\";r=100", "Retry-After: 0",
	} {
		b.steps(step{0, "GET /\n" + lines, refusal("a", 10).with(rate(0, 1, 0, 10))})
	}
}

func lastLine(b *bench) {
	key, err := keyfuncs.ForwardedIP(keyfuncs.Proxies{Trusted: []string{"127.0.0.0/8", "198.51.100.200"}})
	if err != nil {
		b.Fatal(err)
	}
	r := b.rule("a", "1/10s fixed-window")
	r.Key = key
	b.serve(App{Limiter: b.limiter(r)})
	passes, refused := Text(200, "ok").with(rate(0, 1, 0, 10)), refusal("a", 10).with(rate(0, 1, 0, 10))
	b.steps(
		step{0, "GET /\nX-Forwarded-For: 203.0.113.1\nX-Forwarded-For: 203.0.113.9", passes},
		step{0, "GET /\nX-Forwarded-For: 203.0.113.2\nX-Forwarded-For: 203.0.113.9", refused},
		step{0, "GET /\nx-forwarded-for: 203.0.113.9", refused},
		step{0, "GET /\nX-Forwarded-For: 203.0.113.3, 203.0.113.9\nX-Forwarded-For: 198.51.100.200", refused},
		step{0, "GET /\nX-Forwarded-For: 203.0.113.9\nX-Forwarded-For: 203.0.113.1", passes},
	)
}

// oneConnection sends requests that some frameworks keep in the same memory.
func oneConnection(b *bench) {
	r := b.rule("a", "2/10s fixed-window")
	r.Key = keyfuncs.Header("X-User")
	b.serve(App{Limiter: b.limiter(r)})
	one, two := Text(200, "ok").with(rate(0, 2, 1, 10)), Text(200, "ok").with(rate(0, 2, 0, 10))
	for _, want := range []Answer{one, two, refusal("a", 10).with(rate(0, 2, 0, 10))} {
		for _, user := range []string{"alice", "bobby", "carol"} {
			b.steps(step{0, "GET /\nX-User: " + user, want})
		}
	}
}

func nativeKey(b *bench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = b.User
	b.serve(App{Limiter: b.limiter(r)})
	passes, refused := Text(200, "ok").with(rate(0, 1, 0, 10)), refusal("a", 10).with(rate(0, 1, 0, 10))
	b.steps(
		step{0, "GET /\nX-User: alice", passes},
		step{0, "GET /\nX-User: alice", refused},
		step{0, "GET /\nX-User: bobby", passes},
		step{0, "GET /\nX-User: alice\nX-Exempt: 1", Text(200, "ok")},
		step{0, "GET /", passes},
		step{0, "GET /", refused},
	)
	for _, r := range []core.Request{nil, foreign{}} {
		if key, ok := b.User(r); key != "" || !ok {
			b.Errorf("the request %v of another framework has the key %q, %t", r, key, ok)
		}
	}
}

// foreign is a request of no framework.
type foreign struct{ core.Request }

func headCounts(b *bench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = keyfuncs.Method
	b.serve(App{Limiter: b.limiter(r)})
	passes, refused := Text(200, "ok").with(rate(0, 1, 0, 10)), refusal("a", 10).with(rate(0, 1, 0, 10))
	b.steps(
		step{0, "GET /", passes},
		step{0, "HEAD /", refused.forHEAD()},
		step{0, "POST /", passes},
		step{0, "POST /", refused},
		step{0, "GET /", refused},
	)
}

func host(b *bench) {
	r := b.rule("a", "9/10s fixed-window")
	r.Key = keyfuncs.Host
	l := b.limiter(r)
	b.serve(App{Limiter: l})
	b.ask("GET /")
	b.wantLeft(l, 8)
}

// seen checks all that a rule sees of a request with forged headers.
func seen(b *bench) {
	views := make(chan string, 1)
	r := b.rule("a", "9/10s fixed-window")
	r.Key = func(r core.Request) (string, bool) {
		views <- fmt.Sprintf("%s %s %q %s %q %q %q %t", r.Method(), r.Path(), r.Route(), r.RemoteAddr(),
			r.Header("Host"), r.Header("X-Forwarded-For"), r.Header("X-None"), r.Context() != nil)
		return "", true
	}
	b.serve(App{Limiter: b.limiter(r), Paths: Routed})
	request := b.request("POST /login?a=b\nX-Forwarded-For: 6.6.6.6\nX-Forwarded-For: 7.7.7.7")
	request.Host = "api.example"
	conn := b.dial()
	if err := request.Write(conn); err != nil {
		b.Fatal(err)
	}
	readStatus(b, conn)
	want := fmt.Sprintf(`POST /login %q %s ["api.example"] ["6.6.6.6" "7.7.7.7"] [] true`, b.Route, conn.LocalAddr())
	if got := await(b, "a key", views); got != want {
		b.Errorf("got %s, want %s", got, want)
	}
}

// spellings are paths that some routers take for /login.
var spellings = []string{
	"/LOGIN", "/Login", "/login/", "/LOGIN/", "/login//", "//login", "/./login", "/x/../login",
	"/%6cogin", "/%6Cogin", "/%6C%6F%67%69%6E", "/login%2f", "/login%2F", "/login;a=b", "/login%20", "/login%00",
	"/login?a=b", "/login.", "/login/.", `/\login`, "/login%3Fa=b",
}

// spelled requests all spellings of /login. Each has to be counted or to miss the
// handler.
func spelled(b *bench, r limiter.Rule, same []string, paths Paths) {
	var reached atomic.Int64
	b.serve(App{Limiter: b.limiter(r), Paths: paths, Handler: func(x Exchange) error {
		reached.Add(1)
		return ok(x)
	}})
	passes, refused := Text(200, "ok").with(rate(0, 1, 0, 10)), refusal("a", 10).with(rate(0, 1, 0, 10))
	b.steps(step{0, "POST /login", passes}, step{0, "POST /login", refused})
	for _, path := range spellings {
		got := b.ask("POST " + path)
		if slices.Contains(same, path) {
			b.equal(got, refused, "%s", path)
		} else if got.Status == 429 && paths == Routed {
			b.Errorf("%s: counts as /login, which the driver does not say", path)
		}
	}
	if n := reached.Load(); n != 1 {
		b.Errorf("the handler was reached %d times by way of %s", n, strings.Join(spellings, " "))
	}
}

func routeSpellings(b *bench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = func(r core.Request) (string, bool) { return r.Route(), r.Route() != "" }
	spelled(b, r, b.SameRoute, Routed)
}

func pathSpellings(b *bench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = keyfuncs.Path
	spelled(b, r, b.SamePath, Login)
}

// session sends one session in many spellings, each of which the handler checks.
func session(b *bench) {
	const id = "0123456789abcdef"
	r := b.rule("a", "3/1h sliding-log")
	r.Key = keyfuncs.Cookie("sid")
	var known, passed atomic.Int64
	b.serve(App{Limiter: b.limiter(r), Handler: func(x Exchange) error {
		passed.Add(1)
		if x.Cookie("sid") == id {
			known.Add(1)
		}
		return ok(x)
	}})
	escapes := []int{0, 0xffff, 0x5555, 0xaaaa} // a bit for each byte of the id
	for at := range len(id) {
		escapes = append(escapes, 1<<at)
	}
	for _, i := range escapes {
		value := ""
		for at := range len(id) {
			if i>>at&1 == 1 {
				value += fmt.Sprintf("%%%02x", id[at])
			} else {
				value += id[at : at+1]
			}
		}
		b.ask("GET /\nCookie: sid=" + value)
	}
	if known.Load() == 0 || passed.Load() != 3 {
		b.Errorf("%d requests passed, want 3; in %d the handler reads the session", passed.Load(), known.Load())
	}
}

// hostRead sends hosts in every place from which a framework may read one. Requests
// that a handler takes for one host have one key, or share the key of unknown ones.
func hostRead(b *bench) {
	views := make(chan string, 1)
	r := b.rule("a", "99/10s fixed-window")
	r.Key = func(r core.Request) (string, bool) {
		key, ok := keyfuncs.Host(r)
		views <- key
		return key, ok
	}
	b.serve(App{Limiter: b.limiter(r), Handler: func(x Exchange) error { return x.Reply(200, x.Host()) }})
	for _, forwarded := range []string{"", "shop.example", "Shop.example:80, b.example", "other.example"} {
		request := b.request("GET /")
		request.Host = "other.example"
		if forwarded != "" {
			request.Header.Set("X-Forwarded-Host", forwarded)
		}
		got, err := b.exchange(request)
		if err != nil {
			b.Fatal(err)
		}
		want := "other.example"
		if got.Body != want {
			want = ""
		}
		if key := await(b, "a key", views); key != want {
			b.Errorf("X-Forwarded-Host %q: the handler reads %q, and the key is %q, want %q", forwarded, got.Body, key, want)
		}
	}
}
