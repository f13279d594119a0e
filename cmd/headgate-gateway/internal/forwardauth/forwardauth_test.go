package forwardauth

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/refusal"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/quietlog"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
	"github.com/headgate/headgate/policy"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // TestFailsClosed has no server
	test.Exit(m.Run())
}

// silent is a logger of go-redis that writes nothing.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// limit returns a policy of the application shop.
func limit(name, text, key string, changes ...func(*policy.Policy)) policy.Policy {
	p := policy.Policy{Name: name, Apps: []string{"shop"}, Limit: core.MustParseLimit(text), Key: key}
	for _, change := range changes {
		change(&p)
	}
	return p
}

const proxy = "10.0.0.1"

// face is a handler over counts in memory, and its log.
type face struct {
	http.Handler
	log *test.Log
}

// open returns a handler which trusts the proxy, and what ends it.
func open(t testing.TB, o Options, policies ...policy.Policy) (*face, func()) {
	t.Helper()
	c, err := callers.New(callers.Options{Trusted: []string{proxy}, UserHeader: "X-User", PlanHeader: "X-Plan",
		ClaimsHeader: "X-Jwt-Payload"})
	if err != nil {
		t.Fatal(err)
	}

	log := new(test.Log)
	logger := slog.New(slog.NewTextHandler(log, nil))

	e, err := engine.Open(context.Background(), engine.Options{
		Apps: []string{"shop", "other"}, Source: engine.Fixed(policies), Bindings: c.Bindings(), Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}

	o.Callers, o.Log = c, quietlog.New(logger)
	h, err := New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	return &face{h, log}, func() { o.Log.Close(); e.Close() }
}

// in runs a test in a bubble, in which time passes only while everything waits.
func in(t *testing.T, o Options, policies []policy.Policy, run func(*testing.T, *face)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f, end := open(t, o, policies...)
		defer end()
		run(t, f)
	})
}

// ask asks the handler, from the proxy unless a line of the headers is "peer: address".
func (f *face) ask(query string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", Path+query, nil)
	r.Header = lines(headers...)
	r.RemoteAddr = proxy + ":4711"
	if peer := r.Header.Get("peer"); peer != "" {
		r.RemoteAddr = peer
		r.Header.Del("peer")
	}
	r.Pattern = Path
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

// get returns the headers of a gateway that asks about GET of the target for the caller.
func get(target, caller string, more ...string) []string {
	return append([]string{"X-Forwarded-Method: GET", "X-Forwarded-Uri: " + target, "X-Forwarded-Host: shop.test",
		"X-Forwarded-For: " + caller}, more...)
}

// wants fails the test unless the answer has the status and the headers, each "Name:
// value", where an empty value means that there is none.
func wants(t *testing.T, w *httptest.ResponseRecorder, status int, headers ...string) {
	t.Helper()
	if w.Code != status {
		t.Fatalf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	for _, line := range headers {
		name, want, _ := strings.Cut(line, ": ")
		if got := strings.Join(w.Header()[http.CanonicalHeaderKey(name)], "; "); got != strings.TrimSpace(want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestAnswer(t *testing.T) {
	policies := []policy.Policy{limit("all", "2/1m fixed-window", "ip")}
	in(t, Options{}, policies, func(t *testing.T, f *face) {
		wants(t, f.ask("", get("/", "192.0.2.1")...), 200, "RateLimit: \"all\";r=1;t=60",
			"RateLimit-Policy: \"all\";q=2;w=60",
			"Retry-After: ", StatusHeader+": ", DegradedHeader+": ", "X-RateLimit-Remaining: 1")

		// 59.5 s are left, and are rounded up: a client that waits for 59 would come too early.
		time.Sleep(500 * time.Millisecond)
		wants(t, f.ask("", get("/", "192.0.2.1")...), 200, "RateLimit: \"all\";r=0;t=60")

		refused := f.ask("", get("/", "192.0.2.1")...)
		wants(t, refused, 429, "Retry-After: 60", StatusHeader+": 429", "RateLimit: \"all\";r=0;t=60",
			"RateLimit-Policy: \"all\";q=2;w=60", "Cache-Control: no-store", "Content-Type: application/problem+json")

		var body struct {
			Status   int
			Violated []string `json:"violated-policies"`
		}
		if err := json.Unmarshal(refused.Body.Bytes(), &body); err != nil || body.Status != 429 ||
			fmt.Sprint(body.Violated) != "[all]" {
			t.Errorf("body %s: %v", refused.Body, err)
		}

		// An auth request can often pass on only some statuses: the gateway asks for one and finds
		// the true one in a header.
		for _, status := range []int{400, 401, 403, 503, 599} {
			wants(t, f.ask(fmt.Sprintf("?deny_status=%d", status), get("/", "192.0.2.1")...), status, StatusHeader+
				": 429", "Retry-After: 60")
		}

		// The status is for refusals alone, and another caller has not been counted.
		wants(t, f.ask("?deny_status=403", get("/", "192.0.2.2")...), 200)
		wants(t, f.ask("?app=other", get("/", "192.0.2.1")...), 200, "RateLimit: ")
		wants(t, f.ask("?app=sh%6Fp&deny_status=401", get("/", "192.0.2.1")...), 401)

		// The window ends a minute after its first request, and not a microsecond before.
		time.Sleep(59500*time.Millisecond - time.Microsecond)
		wants(t, f.ask("", get("/", "192.0.2.1")...), 429, "Retry-After: 1")
		time.Sleep(time.Microsecond)
		wants(t, f.ask("", get("/", "192.0.2.1")...), 200)
	})
}

// The gateway does not see how a request is answered, so units stay taken whichever answers give
// them back elsewhere.
func TestAnswersGiveNothingBack(t *testing.T) {
	policies := []policy.Policy{
		limit("a", "2/1m fixed-window", "ip", func(p *policy.Policy) { p.Refund = policy.Statuses{"2xx"} }),
		limit("b", "2/1m fixed-window", "ip", func(p *policy.Policy) { p.CountOnly = policy.Statuses{"401"} }),
	}
	in(t, Options{}, policies, func(t *testing.T, f *face) {
		for _, want := range []int{200, 200, 429} {
			wants(t, f.ask("", get("/", "192.0.2.1")...), want)
		}
	})
}

func TestQuery(t *testing.T) {
	in(t, Options{}, []policy.Policy{limit("all", "1/1m", "ip")}, func(t *testing.T, f *face) {
		for _, row := range []struct{ query, detail string }{
			{"?deny_staus=403", `there is no parameter "deny_staus"; there are app and deny_status`},
			{"?deny_status=", `deny_status: "" is not a status from 400 to 599`},
			{"?deny_status=200", `deny_status: "200" is not a status from 400 to 599`},
			{"?deny_status=600", `deny_status: "600" is not a status from 400 to 599`},
			{"?deny_status=+403", `deny_status: " 403" is not a status from 400 to 599`},
			{"?deny_status=%2B403", `deny_status: "+403" is not a status from 400 to 599`},
			{"?deny_status=403&deny_status=403", "deny_status is there twice"},
			{"?app=shop&app=shop", "app is there twice"},
			{"?app=none", `app: there is no application "none"`},
			{"?app=", `app: there is no application ""`},
			{"?app=%zz", "an escape in the query is not valid"},
			{"?app=shop&", ""},
			{"?&", `there is no parameter ""; there are app and deny_status`},
			{"?%0A=1", `there is no parameter "\n"; there are app and deny_status`},
		} {
			w := f.ask(row.query, get("/", "192.0.2.1")...)
			if row.detail == "" {
				wants(t, w, 200)
				continue
			}

			var body problem
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatal(err)
			}
			if wants(t, w, 400, StatusHeader+": 400"); body.Detail != row.detail {
				t.Errorf("%s: %q, want %q", row.query, body.Detail, row.detail)
			}
		}

		if log := f.log.String(); strings.Count(log, "wrong query") != 1 {
			t.Errorf("the log does not name the mistake once: %s", log)
		}
	})
}

func TestUntrustedPeer(t *testing.T) {
	in(t, Options{}, []policy.Policy{limit("all", "1/1m", "global")}, func(t *testing.T, f *face) {
		for _, peer := range []string{"10.0.0.2:1", "[::1]:1", "@", "[::ffff:10.0.0.2]:1"} {
			wants(t, f.ask("?deny_status=401", get("/", "192.0.2.1", "peer: "+peer)...), 403, StatusHeader+": 403",
				"RateLimit: ")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if log := f.log.String(); strings.Count(log, "not a trusted proxy") != 2 || !strings.Contains(log, "count=3") {
			t.Errorf("want a line for the first, and one a minute later about three:\n%s", log)
		}
		wants(t, f.ask("", get("/", "192.0.2.1", "peer: [::ffff:10.0.0.1]:1")...), 200) // none of them was counted
	})
}

func TestUnreadableRequest(t *testing.T) {
	in(t, Options{}, []policy.Policy{limit("all", "1/1m", "global")}, func(t *testing.T, f *face) {
		for _, row := range []struct {
			headers []string
			fault   fault
		}{
			{nil, noOriginal},
			{get("/", "192.0.2.1")[:3], noCaller},

			// A target that net/http would not read, and one that it would read as a fragment.
			{get("/%zz", "192.0.2.1"), badTarget},

			{get("/a#b", "192.0.2.1"), badTarget},
			{get("/", "192.0.2.1", "X-Forwarded-Host: b"), repeated},

			// The query of the check itself is what nginx makes of the target, if it is configured
			// so: a client could choose the parameters.
			{get("/?deny_status=403", "192.0.2.1"), passedOn},
		} {
			if row.fault == passedOn {
				wants(t, f.ask("?a=b", get("/?a=b", "192.0.2.1")...), 400, StatusHeader+": 400")
				wants(t, f.ask("?app=other", get("/?app=other", "192.0.2.1")...), 400, StatusHeader+": 400")
			} else {
				wants(t, f.ask("", row.headers...), 400, StatusHeader+": 400", "Cache-Control: no-store")
			}

			w := f.ask("?deny_status=403", row.headers...)
			wants(t, w, 403, StatusHeader+": 400")
			var body problem
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Detail != string(row.fault) ||
				body.Status != 400 {
				t.Errorf("%v %+v, want %q", err, body, row.fault)
			}
		}

		wants(t, f.ask("", get("/", "192.0.2.1")...), 200) // none of them was counted
		if n := strings.Count(f.log.String(), "cannot read"); n != 1 {
			t.Errorf("%d lines, want 1:\n%s", n, f.log)
		}
	})
}

func TestOriginalIsWhatPoliciesSee(t *testing.T) {
	when := func(m policy.Match) func(*policy.Policy) { return func(p *policy.Policy) { p.Match = m } }
	policies := []policy.Policy{
		limit("method", "9/1m", "global", when(policy.Match{Methods: []string{"DELETE"}})),
		limit("path", "9/1m", "global", when(policy.Match{Path: "/login"})),
		limit("auth", "9/1m", "global", when(policy.Match{Path: Path})),
		limit("host", "9/1m", "global", when(policy.Match{Host: "api.test"})),
		limit("export", "9/1m", "global", when(policy.Match{Query: map[string]policy.Values{"export": {"csv"}}})),
		limit("free", "1/1m", "global", when(policy.Match{Claims: map[string]policy.Values{"plan": {"free"}}})),
		limit("user", "1/1m", "user", when(policy.Match{Path: "/user"})),
		limit("plan", "1/1m", "ip", when(policy.Match{Path: "/plan"}), func(p *policy.Policy) {
			p.Plans, p.PlanBy = map[string]core.Limit{"gold": core.MustParseLimit("5/1m")}, callers.PlanBy
		}),
	}

	in(t, Options{}, policies, func(t *testing.T, f *face) {
		for _, row := range []struct{ method, target, host, want string }{
			// The method, the path and the host are those of the request asked about, and never
			// those of the check.
			{"GET", "/", "shop.test", ""},
			{"DELETE", "/", "shop.test", "method"},
			{"GET", "/login?next=/auth", "shop.test", "path"},
			{"GET", "/%6Cogin/", "shop.test", "path"},
			{"GET", "//x/..//LOGIN", "shop.test", "path"},
			{"GET", "/", "API.test:8443", "host"},
			{"DELETE", "/login", "api.test", "host,method,path"},
			{"GET", "/auth", "shop.test", "auth"},
			{"GET", "/a?export=csv", "shop.test", "export"},
			{"GET", "/a?export=csv;", "shop.test", ""},
		} {
			w := f.ask("", "X-Original-Method: "+row.method, "X-Original-URI: "+row.target, "X-Forwarded-Host: "+
				row.host, "X-Forwarded-For: 192.0.2.1")
			wants(t, w, 200)

			var names []string
			for part := range strings.SplitSeq(w.Header().Get("RateLimit-Policy"), ", ") {
				if name, _, ok := strings.Cut(strings.TrimPrefix(part, `"`), `"`); ok {
					names = append(names, name)
				}
			}

			if got := strings.Join(names, ","); got != row.want {
				t.Errorf("%s %s of %s: %q, want %q", row.method, row.target, row.host, got, row.want)
			}
		}

		// Claims are those that the proxy has verified.
		const free = "X-Jwt-Payload: eyJwbGFuIjoiZnJlZSJ9"
		wants(t, f.ask("", get("/", "192.0.2.1", free)...), 200)
		wants(t, f.ask("", get("/", "192.0.2.1", free)...), 429)
		wants(t, f.ask("", get("/", "192.0.2.1", free, free)...), 200)
		wants(t, f.ask("", get("/", "192.0.2.1", `X-Jwt-Payload: {"plan":"pro"}`)...), 200)

		// A user counts as one from any address, and a plan holds for who has it.
		wants(t, f.ask("", get("/user", "192.0.2.1", "X-User: ann")...), 200)
		wants(t, f.ask("", get("/user", "192.0.2.2", "X-User: ann")...), 429)
		wants(t, f.ask("", get("/user", "192.0.2.1", "X-User: bob")...), 200)
		wants(t, f.ask("", get("/plan", "192.0.2.1", "X-Plan: gold")...), 200, "X-RateLimit-Limit: 5")
		wants(t, f.ask("", get("/plan", "192.0.2.3")...), 200, "X-RateLimit-Limit: 1")
	})
}

func TestActions(t *testing.T) {
	change := func(m string, set func(*policy.Policy)) func(*policy.Policy) {
		return func(p *policy.Policy) { p.Match.Path = m; set(p) }
	}

	policies := []policy.Policy{
		limit("cheap", "1/1m", "global", change("/cheap", func(p *policy.Policy) { p.OnLimit = "degrade" })),
		limit("tried", "1/1m", "global", change("/tried", func(p *policy.Policy) { p.Mode = policy.Shadow })),
		limit("slow", "60/1m burst=1", "global", change("/slow", func(p *policy.Policy) { p.OnLimit = "wait 30s" })),
		limit("running", "1 concurrent ttl=1m", "global", change("/running", func(*policy.Policy) {})),
		limit("denied", "9/1m", "ip", change("/denied",
			func(p *policy.Policy) { p.Access.Deny.Networks = []string{"192.0.2.0/24"} })),
	}

	in(t, Options{}, policies, func(t *testing.T, f *face) {
		// Each policy is asked twice, and allows one.
		wants(t, f.ask("", get("/cheap", "192.0.2.1")...), 200, DegradedHeader+": ")
		wants(t, f.ask("", get("/cheap", "192.0.2.1")...), 200, DegradedHeader+": 1", StatusHeader+": ")
		wants(t, f.ask("", get("/tried", "192.0.2.1")...), 200)
		wants(t, f.ask("", get("/tried", "192.0.2.1")...), 200, DegradedHeader+": ", "RateLimit: ")

		begun := time.Now()
		wants(t, f.ask("", get("/slow", "192.0.2.1")...), 200)
		wants(t, f.ask("", get("/slow", "192.0.2.1")...), 200)
		if waited := time.Since(begun); waited != time.Second {
			t.Errorf("waited %s, want 1s", waited)
		}

		results := make(chan int)
		for range 3 {
			go func() { results <- f.ask("", get("/slow", "192.0.2.1")...).Code }()
		}

		begun = time.Now()
		for _, want := range []struct {
			status int
			after  time.Duration
		}{{429, 0}, {429, 0}, {200, time.Second}} { // the turns come after 1, 2 and 3 s, and no wait is as long as 2 s
			if got := <-results; got != want.status || time.Since(begun) != want.after {
				t.Errorf("%d after %s, want %v", got, time.Since(begun), want)
			}
		}

		for range 3 {
			// A lease would never be released: the policy is left out, with a line in the log.
			wants(t, f.ask("", get("/running", "192.0.2.1")...), 200, "RateLimit: ")
		}
		if log := f.log.String(); !strings.Contains(log, "policy=running") ||
			!strings.Contains(log, "face=forward-auth") {
			t.Errorf("the log does not name the policy that is left out: %s", log)
		}

		wants(t, f.ask("", get("/denied", "192.0.2.1")...), 403, StatusHeader+": 403", "Retry-After: ")
		wants(t, f.ask("?deny_status=401", get("/denied", "192.0.2.1")...), 401, StatusHeader+": 403")
		wants(t, f.ask("", get("/denied", "198.51.100.1")...), 200)
	})
}

func TestTooManyWait(t *testing.T) {
	slow := limit("slow", "6000/1m burst=1", "global", func(p *policy.Policy) { p.OnLimit = "wait 30s" })
	in(t, Options{MaxWait: 30 * time.Second}, []policy.Policy{slow}, func(t *testing.T, f *face) {
		const admitted = 1 + 100 // which Config.MaxWaitersPerKey is by default

		answers := make(chan int, admitted)
		for range admitted {
			go func() { answers <- f.ask("?deny_status=403", get("/", "192.0.2.1")...).Code }()
		}

		synctest.Wait() // one has passed, and the others wait

		for range 49 {
			// the next turn is 1.01 s away
			wants(t, f.ask("?deny_status=403", get("/", "192.0.2.1")...), 403, StatusHeader+": 503", "Retry-After: 2")
		}

		for range admitted {
			if status := <-answers; status != 200 {
				t.Errorf("a request with a place got %d", status)
			}
		}
	})
}

func TestFailsClosed(t *testing.T) {
	c, err := callers.New(callers.Options{Trusted: []string{proxy}})
	if err != nil {
		t.Fatal(err)
	}

	closed := func(p *policy.Policy) { p.Match.Path, p.OnStoreError = "/closed", "closed" }
	e, err := engine.Open(t.Context(), engine.Options{
		Apps: []string{"shop"}, Redis: &redis.UniversalOptions{Addrs: []string{freeport.Addr(t)}}, // where no server is
		Source:   engine.Fixed(policy.Set{limit("closed", "9/1m", "ip", closed), limit("local", "1/1m", "ip")}),
		Bindings: c.Bindings(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()

	log := quietlog.New(slog.New(slog.DiscardHandler))
	defer log.Close()
	h, err := New(e, Options{Callers: c, Log: log})
	if err != nil {
		t.Fatal(err)
	}

	f := &face{Handler: h}

	// The policy says that it fails closed: with the status of the query too, and the true one in
	// the header.
	for range 2 {
		w := f.ask("", get("/closed", "192.0.2.1")...)
		wants(t, w, 503, StatusHeader+": 503", "Cache-Control: no-store", "Content-Type: application/problem+json")
		if w.Header().Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		wants(t, f.ask("?deny_status=403", get("/closed", "192.0.2.1")...), 403, StatusHeader+": 503")
	}

	// The other one is decided in memory, where its limit holds.
	wants(t, f.ask("", get("/", "192.0.2.2")...), 200)
	wants(t, f.ask("", get("/", "192.0.2.2")...), 429)
}

func TestNewNamesEveryMistake(t *testing.T) {
	e, err := engine.Open(t.Context(),
		engine.Options{Apps: []string{"shop"}, Source: engine.Fixed(nil), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = New(e, Options{MaxWait: time.Minute})
	for _, want := range []string{"Callers and Log must be set", "MaxWait: 1m0s is not within 0 to 30s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not hold %q", err, want)
		}
	}
}

// A tunnel is one request with any number in it, so a request for one is refused, under a policy
// or none.
func TestRefusesTunnels(t *testing.T) {
	in(t, Options{}, nil, func(t *testing.T, f *face) {
		for name, row := range map[string]struct {
			lines  []string
			status int
		}{
			"none":      {nil, 200},
			"websocket": {[]string{"Connection: Upgrade", "Upgrade: WebSocket"}, 200},
			"h2c":       {[]string{"Connection: Upgrade", "Upgrade: h2c"}, 400},

			// The first that is named in a list is not the one that a server has to take.
			"a list":    {[]string{"Upgrade: websocket, h2c"}, 400},
			"two lines": {[]string{"Upgrade: websocket", "Upgrade: h2c"}, 400},
		} {
			if w := f.ask("", get("/", "192.0.2.1", row.lines...)...); w.Code != row.status {
				t.Errorf("%s: %d, want %d: %s", name, w.Code, row.status, w.Body)
			}
			if w := f.ask("?deny_status=403", get("/", "192.0.2.1", row.lines...)...); row.status == 400 {
				wants(t, w, 403, "Headgate-Status: 400")
			}
		}

		connect := get("/ws", "192.0.2.1")
		connect[0] = "X-Forwarded-Method: CONNECT"
		wants(t, f.ask("", connect...), 400)

		// A WebSocket over HTTP/2 begins by CONNECT, and is the protocol that may pass.
		wants(t, f.ask("", append(connect, "Upgrade: websocket")...), 200)
	})

	in(t, Options{Upgrades: []string{"mqtt"}}, nil, func(t *testing.T, f *face) {
		wants(t, f.ask("", get("/", "192.0.2.1", "Upgrade: MQTT")...), 200)
		wants(t, f.ask("", get("/", "192.0.2.1", "Upgrade: websocket")...), 400)
	})
}

func TestRefusalsOfTheConfiguration(t *testing.T) {
	book, err := refusal.New([]refusal.Options{{Status: 503, Body: "{{status}} by {{policy}}"}})
	if err != nil {
		t.Fatal(err)
	}

	in(t, Options{Refusals: book}, []policy.Policy{limit("all", "1/1h", "global")}, func(t *testing.T, f *face) {
		f.ask("", get("/", "192.0.2.1")...)
		w := f.ask("?deny_status=403", get("/", "192.0.2.1")...)
		if w.Code != 403 || w.Header().Get(StatusHeader) != "503" || w.Body.String() != "503 by all" {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	})
}
