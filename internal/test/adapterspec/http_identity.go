package adapterspec

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

var httpIdentity = []spec{
	{"HEAD counts as GET", onHTTP(headCounts)},
	{"one session has one key, however its cookie is written", onHTTP(session)},
	{"the key of a host is that of the host which handlers read", onHTTP(hostRead)},
	{"rules see the request as it is", onHTTP(requestSeen)},
	{"no spelling of a path gets past the limit of its route", onHTTP(routeSpellings)},
	{"no spelling of a path gets past the limit of the path", onHTTP(pathSpellings)},
}

func headCounts(b *httpBench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = keyfuncs.Method
	b.serve(HTTPApp{Limiter: b.limiter(r)})
	passes, refused := Text(200, "ok").with(rate(0, 1, 0, 10)), b.refusal("a", ten).with(rate(0, 1, 0, 10))
	b.steps(
		step{0, "GET /", passes},
		step{0, "HEAD /", refused.forHEAD()},
		step{0, "POST /", passes},
		step{0, "POST /", refused},
		step{0, "GET /", refused},
	)
}

// requestSeen checks all that a rule sees of a request with forged headers.
func requestSeen(b *httpBench) {
	views := make(chan string, 1)
	r := b.rule("a", "9/10s fixed-window")
	r.Key = func(r core.Request) (string, bool) {
		views <- fmt.Sprintf("%s %s %q %s %q %q %q %t", r.Method(), r.Path(), r.Route(), r.RemoteAddr(),
			r.Header("Host"), r.Header("X-Forwarded-For"), r.Header("X-None"), r.Context() != nil)
		return "", true
	}

	// The connection is known here, so that the address of the client is.
	b.serve(HTTPApp{Limiter: b.limiter(r), Paths: Routed})
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
func spelled(b *httpBench, r limiter.Rule, same []string, paths Paths) {
	var reached atomic.Int64
	b.serve(HTTPApp{Limiter: b.limiter(r), Paths: paths, Handler: func(x Exchange) error {
		reached.Add(1)
		return replyOK(x)
	}})

	// A handler that is reached once more has been reached past the limit.
	passes, refused := Text(200, "ok").with(rate(0, 1, 0, 10)), b.refusal("a", ten).with(rate(0, 1, 0, 10))
	b.steps(step{0, "POST /login", passes}, step{0, "POST /login", refused})

	for _, path := range spellings {
		got := b.send("POST " + path)
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

func routeSpellings(b *httpBench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = func(r core.Request) (string, bool) { return r.Route(), r.Route() != "" }
	spelled(b, r, b.SameRoute, Routed)
}

func pathSpellings(b *httpBench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = keyfuncs.Path
	spelled(b, r, b.SamePath, Login)
}

// session sends one session in many spellings, each of which the handler checks.
func session(b *httpBench) {
	const id = "0123456789abcdef"
	r := b.rule("a", "3/1h sliding-log")
	r.Key = keyfuncs.Cookie("sid")
	var known, passed atomic.Int64
	b.serve(HTTPApp{Limiter: b.limiter(r), Handler: func(x Exchange) error {
		passed.Add(1)
		if x.Cookie("sid") == id {
			known.Add(1)
		}
		return replyOK(x)
	}})

	// Each spelling writes some of the characters as escapes: none, all, every other, or one.
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
		b.send("GET /\nCookie: sid=" + value)
	}

	if known.Load() == 0 || passed.Load() != 3 {
		b.Errorf("%d requests passed, want 3; in %d the handler reads the session", passed.Load(), known.Load())
	}
}

// hostRead sends hosts in every place from which a framework may read one. Requests
// that a handler takes for one host have one key, or share the key of unknown ones.
func hostRead(b *httpBench) {
	views := make(chan string, 1)
	r := b.rule("a", "99/10s fixed-window")
	r.Key = func(r core.Request) (string, bool) {
		key, ok := keyfuncs.Host(r)
		views <- key
		return key, ok
	}
	b.serve(HTTPApp{Limiter: b.limiter(r), Handler: func(x Exchange) error { return x.Reply(200, x.Host()) }})

	// The handler replies with the host that it reads.
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
			b.Errorf("X-Forwarded-Host %q: the handler reads %q, and the key is %q, want %q",
				forwarded, got.Body, key, want)
		}
	}
}
