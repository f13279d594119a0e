package spoe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/callers"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

// text returns the variables as text.
func text(set map[string]value) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if v := set[name]; v.kind == typeString {
			fmt.Fprintf(&b, "%s=%q ", name, v.text)
		} else {
			fmt.Fprintf(&b, "%s=%d ", name, v.number)
		}
	}
	return strings.TrimSpace(b.String())
}

func wantText(t *testing.T, set map[string]value, want string) {
	t.Helper()
	if got := text(set); got != want {
		t.Errorf("the variables are\n%s, want\n%s", got, want)
	}
}

func TestServerDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := greeted(t, open(t, quiet, nil, shop("api", "2/1m fixed-window")))

		// 946684860 is a minute after the clock of the test began, at the first of January 2000.
		passes := func(left int) string {
			return fmt.Sprintf(`decided=1 over=0 ratelimit="\"api\";r=%d;t=60" ratelimit_policy="\"api\";q=2;w=60" `+
				`x_ratelimit_limit="2" x_ratelimit_remaining="%d" x_ratelimit_reset="946684860"`, left, left)
		}

		wantText(t, h.ask(about("192.0.2.1")), passes(1))
		wantText(t, h.ask(about("192.0.2.1")), passes(0))

		// 29.5 s are left of the window, and are reported as 30.
		time.Sleep(30500 * time.Millisecond)
		set := h.ask(about("192.0.2.1"))
		if body := set["body"].text; !strings.Contains(body, `"status":429`) || !strings.Contains(body, `"api"`) {
			t.Errorf("the body is %s", body)
		}

		delete(set, "body")
		wantText(t, set, `decided=1 over=1 ratelimit="\"api\";r=0;t=30" ratelimit_policy="\"api\";q=2;w=60" `+
			`retry_after="30" status=429 x_ratelimit_limit="2" x_ratelimit_remaining="0" x_ratelimit_reset="946684860"`)

		// The window of another caller begins with its first request, 30.5 s later and rounded up.
		wantText(t, h.ask(about("2001:db8::1")), strings.ReplaceAll(passes(1), "946684860", "946684891"))
	})
}

func TestServerDegrades(t *testing.T) {
	p := shop("api", "1/1h")
	p.OnLimit = "degrade"
	h := greeted(t, open(t, quiet, nil, p))
	if set := h.ask(about("192.0.2.1")); set["degraded"].number != 0 || set["decided"].number != 1 {
		t.Error(text(set))
	}
	if set := h.ask(about("192.0.2.1")); set["degraded"].number != 1 || set["over"].number != 0 {
		t.Error(text(set))
	}
}

// admitted returns how many of the messages pass.
func (h *haproxy) admitted(list ...message) (n int) {
	h.t.Helper()
	for _, m := range list {
		set := h.ask(m)
		if set["decided"].number != 1 {
			h.t.Fatalf("not decided: %s", text(set))
		}
		if set["over"].number == 0 {
			n++
		}
	}
	return n
}

// Addresses that are forwarded count from trusted proxies only, and all lines do.
func TestServerBelievesForwardedAddressesOfTrustedProxies(t *testing.T) {
	h := greeted(t,
		open(t, quiet, func(c *callers.Options, _ *Options) { c.Trusted = []string{"192.0.2.7"} }, shop("api", "1/1h")))

	from := func(src string, lines ...string) message {
		m := about(src)
		for _, l := range lines {
			m.headers = append(m.headers, [2]string{"x-forwarded-for", l})
		}
		return m
	}

	// What an address that is not trusted forwards means nothing: one caller, whatever it claims.
	if n := h.admitted(from("198.51.100.1", "203.0.113.1"), from("198.51.100.1", "203.0.113.2"),
		from("198.51.100.1")); n != 1 {
		t.Errorf("%d of the requests of one caller passed, want 1", n)
	}

	// In the second a client has put an address before its own, and is the same caller as the
	// first: of six, five pass.
	if n := h.admitted(from("192.0.2.7", "203.0.113.1"), from("192.0.2.7", "9.9.9.9", "203.0.113.1"),
		from("192.0.2.7", "203.0.113.2"), from("192.0.2.7", "203.0.113.2, 203.0.113.3"),
		from("192.0.2.7", "203.0.113.4", "192.0.2.7"), from("192.0.2.7", "203.0.113.5", "192.0.2.7")); n != 5 {
		t.Errorf("%d of the requests of five callers passed, want 5", n)
	}
}

func TestServerCountsByWhatHAProxyKnows(t *testing.T) {
	byUser, byKey, plans, login := shop("user", "1/1h"), shop("key", "1/1h"), shop("plans", "1/1h"),
		shop("login", "1/1h")
	exports, free := shop("exports", "1/1h"), shop("free", "1/1h")
	exports.Match.Query = map[string]policy.Values{"export": {"csv"}}
	free.Match.Claims = map[string]policy.Values{"plan": {"free"}}

	byUser.Key, byKey.Key, plans.Key = "user", "api-key", "user"
	plans.Plans, plans.PlanBy = map[string]policyLimit{"pro": shop("", "3/1h").Limit}, callers.PlanBy
	login.Match = policy.Match{Methods: []string{"POST"}, Host: "shop.example", Path: "/login"}

	with := func(change func(*message)) message {
		m := about("192.0.2.1")
		change(&m)
		return m
	}

	for name, c := range map[string]struct {
		policy policy.Policy
		list   []message
		want   int
	}{
		"user": {byUser, []message{with(func(m *message) { m.user = "ann" }), with(func(m *message) { m.user = "ben" }),
			with(func(m *message) { m.user = "ann"; m.src = "192.0.2.9" })}, 2},

		// HAProxy sends names in lower case, and others may not.
		"header": {byKey, []message{with(func(m *message) { m.headers = [][2]string{{"x-api-key", "a"}} }),
			with(func(m *message) { m.headers = [][2]string{{"X-API-KEY", "a"}} }),
			with(func(m *message) { m.headers = [][2]string{{"x-api-key", "b"}} })}, 2},
		"plan": {plans, slices.Repeat([]message{with(func(m *message) { m.user, m.plan = "ann", "pro" })}, 5), 3},

		// The path is compared as a server reads it: an escape, dots and another case lead to the
		// same page.
		"match": {login, []message{with(func(m *message) { m.method, m.path = "POST", "/login" }),
			with(func(m *message) { m.method, m.path = "POST", "/%6Cogin/" }),
			with(func(m *message) { m.method, m.path = "POST", "/x/..//LOGIN" }),
			with(func(m *message) { m.method, m.path = "GET", "/login" })}, 2},

		"query": {exports, []message{with(func(m *message) { m.path = "/a?export=csv" }),
			with(func(m *message) { m.path = "/b?x=1&%65xport=csv" }),
			with(func(m *message) { m.path = "/b?export=pdf" }),
			with(func(m *message) { m.path = "/b" })}, 3},

		// The payload of a token is JSON, or that in base64url. What is neither is no claims.
		"claims": {free, []message{with(func(m *message) { m.claims = `{"plan":"free"}` }),
			with(func(m *message) { m.claims = "eyJwbGFuIjoiZnJlZSJ9" }),
			with(func(m *message) { m.claims = `{"plan":"pro"}` }),
			with(func(m *message) { m.claims = `{"plan":"free"` }), with(func(m *message) {})}, 4},

		// No policy has the application blog, so nothing is limited there.
		"app": {byUser, []message{with(func(m *message) { m.app = "blog" }), with(func(m *message) { m.app = "blog" }),
			with(func(m *message) { m.app = "shop" })}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			h := greeted(t, open(t, quiet, nil, c.policy))
			if n := h.admitted(c.list...); n != c.want {
				t.Errorf("%d passed, want %d", n, c.want)
			}
		})
	}
}

// A request that waits for its turn waits no longer than HAProxy does.
func TestServerBoundsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := shop("api", "1/300ms")
		p.OnLimit = "wait 10s"
		h := greeted(t, open(t, quiet, nil, p))
		start := time.Now()

		// A wait of 300 ms is below DefaultMaxWait of 400 ms, and one of 600 ms above: it is
		// refused at once.
		h.send(notifyFrame(1, 1, about("192.0.2.1")))
		h.send(notifyFrame(1, 2, about("192.0.2.1")))
		h.send(notifyFrame(1, 3, about("192.0.2.1")))
		var got []string

		// The answers come as they are ready, not in the order of the requests.
		for range 3 {
			f := h.receive()
			set := h.variables(f)
			got = append(got, fmt.Sprintf("over %d after %s", set["over"].number, time.Since(start)))
		}
		slices.Sort(got)

		if want := []string{"over 0 after 0s", "over 0 after 300ms", "over 1 after 0s"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestServerLeavesOutLeases(t *testing.T) {
	var log bytes.Buffer
	h := greeted(t,
		open(t, slog.New(slog.NewTextHandler(&log, nil)), nil, shop("jobs", "1 concurrent ttl=1m"),
			shop("api", "9/1h")))
	if n := h.admitted(about("192.0.2.1"), about("192.0.2.1")); n != 2 {
		t.Errorf("%d passed, want 2", n)
	}
	if !strings.Contains(log.String(), "policy=jobs") || strings.Contains(log.String(), "policy=api") {
		t.Errorf("the log is\n%s", log.String())
	}
}

// All requests of many connections are decided, each once.
func TestServerIsExactUnderPipelining(t *testing.T) {
	s := open(t, quiet, nil, shop("api", "500/1h fixed-window"))
	var all sync.WaitGroup
	passed := make(chan int, 8)
	for range cap(passed) {
		h := greeted(t, s)
		all.Go(func() {
			// A quarter of what all ask for fits. Writing goes on beside reading: neither side of
			// a pipe has a buffer.
			go func() {
				for i := range 250 {
					_, _ = h.c.Write(notifyFrame(uint64(i), 1, about("192.0.2.1")))
				}
			}()

			n, seen := 0, map[uint64]bool{}
			for range 250 {
				f, err := readFrame(h.r, maxFrame)
				if err != nil || seen[f.stream] {
					t.Errorf("stream %d again, or %v", f.stream, err)
					break
				}
				seen[f.stream] = true
				if h.variables(f)["over"].number == 0 {
					n++
				}
			}

			passed <- n
		})
	}
	all.Wait()

	total := 0
	for range cap(passed) {
		total += <-passed
	}

	if total != 500 {
		t.Errorf("%d passed, want 500", total)
	}
}

func TestServerAnswersWhatItCannotRead(t *testing.T) {
	with := func(change func(*message)) message {
		m := about("192.0.2.1")
		change(&m)
		return m
	}

	for _, c := range []struct {
		message message
		log     string // or "", for a refusal
	}{
		// An operator's mistake of the configuration sets nothing, so that HAProxy does as it does
		// without an answer. The log names the argument.
		{with(func(m *message) { m.without = []string{"src"} }), "src"},
		{with(func(m *message) { m.without = []string{"method"} }), "method"},
		{with(func(m *message) { m.without = []string{"path"} }), "path"},
		{with(func(m *message) { m.without = []string{"headers"} }), "headers"},
		{with(func(m *message) { m.app = "other" }), "app"},
		{with(func(m *message) { m.name = "other" }), "-"},

		// A client's mistake is refused: it could otherwise choose to be not decided, and pass.
		{with(func(m *message) { m.path = "/%zz" }), ""},
		{with(func(m *message) { m.path = "/a#b" }), ""},
		{with(func(m *message) { m.path = "a" }), ""},
	} {
		var log bytes.Buffer
		h := greeted(t, open(t, slog.New(slog.NewTextHandler(&log, nil)), nil, shop("api", "1/1h")))
		set := h.ask(c.message)

		if c.log == "" {
			wantText(t, set,
				`body="{\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400,\"detail\":\"the path cannot be decoded\"}" decided=1 over=1 status=400`)
			continue
		}

		if len(set) != 0 {
			t.Errorf("%+v is answered by %s", c.message, text(set))
		}
		if c.log != "-" && !strings.Contains(log.String(), `\"`+c.log+`\"`) {
			t.Errorf("%+v: the log is\n%s", c.message, log.String())
		}

		if n := h.admitted(about("192.0.2.1")); n != 1 {
			t.Error("the next request is refused")
		}
	}

	h := greeted(t, open(t, quiet, nil, shop("api", "1/1h")))

	// Without an address, as on a Unix socket, all are one caller.
	if n := h.admitted(about("unix"), about("unix")); n != 1 {
		t.Errorf("%d requests without an address passed, want 1", n)
	}

	if n := h.admitted(with(func(m *message) { m.method, m.path = "OPTIONS", "*" })); n != 1 {
		t.Error("the target * is refused")
	}
}

// An answer has at most the size that was agreed: what says whether the request passes
// comes first.
func TestServerKeepsToTheSizeOfFrames(t *testing.T) {
	var many []policy.Policy
	for i := range 40 {
		many = append(many, shop(fmt.Sprintf("a-policy-with-a-long-name-%d", i), "1/1h"))
	}

	s := open(t, quiet, nil, many...)

	// From the smallest size that the protocol knows: the headers of 40 policies fit into the
	// largest alone.
	for _, size := range []uint32{minFrame, 1500, maxFrame} {
		h := connect(t, s)
		h.send(helloFrame("supported-versions", "2.0", "max-frame-size", size, "capabilities", ""))
		if got := h.pairs(h.receive()); text(got) !=
			fmt.Sprintf(`capabilities="" max-frame-size=%d version="2.0"`, size) {
			t.Errorf("the HELLO is %s", text(got))
		}

		m := about("192.0.2.1")
		m.headers = nil

		// The first passes and the second is refused, with a body that does not fit either.
		for range 2 {
			h.send(notifyFrame(1, 1, m))
			prefix, err := h.r.Peek(lengthBytes)
			if n := binary.BigEndian.Uint32(prefix); err != nil || n > size {
				t.Errorf("a frame of %d bytes, want at most %d; %v", n, size, err)
			}

			set := h.variables(h.receive())
			if set["decided"].number != 1 || (size == maxFrame) != (set["ratelimit"].text != "") {
				t.Errorf("%d bytes: %.300s", size, text(set))
			}
		}
	}
}

func TestServerGreets(t *testing.T) {
	size := uint32(16380)
	for name, c := range map[string]struct {
		frame []byte
		want  status
	}{
		"no version":      {helloFrame("max-frame-size", size, "capabilities", ""), noVersion},
		"no size":         {helloFrame("supported-versions", "2.0", "capabilities", ""), noFrameSize},
		"no capabilities": {helloFrame("supported-versions", "2.0", "max-frame-size", size), noCapabilities},
		"old": {helloFrame("supported-versions", "1.0", "max-frame-size", size, "capabilities", ""),
			unsupportedVersion},
		"small": {helloFrame("supported-versions", "2.0", "max-frame-size", uint32(255), "capabilities", ""),
			badFrameSize},
		"another frame": {notifyFrame(1, 1, about("192.0.2.1")), invalidFrame},

		// Too long and too short before anything else of the frame has come.
		"too long":  {binary.BigEndian.AppendUint32(nil, maxFrame+1), tooBig},
		"too short": {binary.BigEndian.AppendUint32(nil, 3), invalidFrame},
		"junk":      {append(binary.BigEndian.AppendUint32(nil, 12), "GET / HTTP/1.1"[:12]...), invalidFrame},
	} {
		h := connect(t, open(t, quiet, nil, shop("api", "1/1h")))
		go func() { _, _ = h.c.Write(append(c.frame, "abc"...)) }()
		f := h.receive()

		if got := h.pairs(f); f.kind != agentDisconnect || status(got["status-code"].number) != c.want ||
			got["message"].text == "" {
			t.Errorf("%s: type %d, %s, want status %d", name, f.kind, text(got), c.want)
		}
		h.ended()
	}

	h := connect(t, open(t, quiet, nil))

	// After the health check the connection ends: HAProxy opens another for requests.
	h.send(helloFrame("supported-versions", "1.0, 2.0", "max-frame-size", size, "capabilities", "", "healthcheck",
		true))
	if f := h.receive(); f.kind != agentHello {
		t.Errorf("a health check is answered by type %d", f.kind)
	}
	h.ended()
}

func TestServerPartsAsAgreed(t *testing.T) {
	s := open(t, quiet, nil, shop("api", "1/1h"))
	for name, c := range map[string]struct {
		frame []byte
		want  status
	}{
		"disconnect": {endFrame(beginFrame(nil, haproxyDisconnect, 0, 0)), normal},

		// One byte more than the HELLO agreed.
		"too long": {binary.BigEndian.AppendUint32(nil, 16381), tooBig},
		"fragment": {append([]byte{0, 0, 0, 7, notify, 0, 0, 0, 0}, 1, 1), noFragmentation},
	} {
		h := greeted(t, s)
		h.send(c.frame)
		f := h.receive()
		if got := h.pairs(f); f.kind != agentDisconnect || status(got["status-code"].number) != c.want {
			t.Errorf("%s: type %d, %s, want status %d", name, f.kind, text(got), c.want)
		}
		h.ended()
	}

	h := greeted(t, s)
	h.send(endFrame(beginFrame(nil, 77, 0, 0))) // of a later version
	if n := h.admitted(about("192.0.2.1")); n != 1 {
		t.Error("the request after a frame of an unknown type is refused")
	}
}

// A peer that sends a frame slowly, or no HELLO, is not waited for.
func TestServerEndsSlowConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, quiet, nil, shop("api", "1/1h"))
		start := time.Now()
		h := connect(t, s)
		h.ended()
		if took := time.Since(start); took != frameTimeout {
			t.Errorf("without a HELLO it ended after %s, want %s", took, frameTimeout)
		}

		// One byte of a length, and then nothing.
		h, start = greeted(t, s), time.Now()
		h.send([]byte{0})
		h.ended()
		if took := time.Since(start); took != frameTimeout {
			t.Errorf("in a frame it ended after %s, want %s", took, frameTimeout)
		}

		h, start = greeted(t, s), time.Now()
		h.ended()
		if took := time.Since(start); took != idleTimeout {
			t.Errorf("idle it ended after %s, want %s", took, idleTimeout)
		}
	})
}

func TestServerBoundsConnections(t *testing.T) {
	s := open(t, quiet, func(_ *callers.Options, o *Options) { o.MaxConns = 2 }, shop("api", "1/1h"))
	greeted(t, s)
	greeted(t, s)
	connect(t, s).ended()
}

// listener is a listener to which no one connects.
type listener chan struct{}

func (l listener) Accept() (net.Conn, error) {
	<-l
	return nil, net.ErrClosed
}
func (l listener) Close() error {
	select {
	case <-l:
	default:
		close(l)
	}
	return nil
}
func (l listener) Addr() net.Addr { return nil }

// Shutdown answers what has been asked, and says good-bye.
func TestServerShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := shop("api", "1/300ms")
		p.OnLimit = "wait 10s"

		s := open(t, quiet, nil, p)
		l := make(listener)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		h, resting := greeted(t, s), greeted(t, s)

		// The first takes the one of 300 ms, so that the second has to wait for its turn.
		h.ask(about("192.0.2.1"))
		h.send(notifyFrame(1, 1, about("192.0.2.1")))
		synctest.Wait()

		start := time.Now()
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(context.Background()) }()

		if f := resting.receive(); f.kind != agentDisconnect {
			t.Errorf("an idle connection ends by type %d", f.kind)
		}
		resting.ended()

		// The wait goes on to its end, and only then the connection does.
		if f := h.receive(); f.kind != ack || h.variables(f)["over"].number != 0 ||
			time.Since(start) != 300*time.Millisecond {
			t.Errorf("the request that waited is answered by %+v after %s", f, time.Since(start))
		}
		if f := h.receive(); f.kind != agentDisconnect {
			t.Errorf("a busy connection ends by type %d", f.kind)
		}
		h.ended()

		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}

		if err := s.Serve(l); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

func TestNewNamesEveryMistake(t *testing.T) {
	_, err := New(openEngine(t), Options{MaxWait: -1, MaxConns: -1})
	for _, want := range []string{"Callers and Log", "MaxWait: -1ns", "MaxConns: -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// A tunnel is one request with any number in it, so a request for one is refused, under a policy
// or none.
func TestServerRefusesTunnels(t *testing.T) {
	h := greeted(t, open(t, quiet, nil))
	for name, row := range map[string]struct {
		method string
		lines  [][2]string
		over   uint64
	}{
		"none":      {"GET", nil, 0},
		"websocket": {"GET", [][2]string{{"connection", "Upgrade"}, {"upgrade", "WebSocket"}}, 0},
		"h2c":       {"GET", [][2]string{{"connection", "Upgrade, HTTP2-Settings"}, {"upgrade", "h2c"}}, 1},

		// Two lines are one list, whatever the case of their names.
		"a list":              {"GET", [][2]string{{"upgrade", "websocket, h2c"}}, 1},
		"two lines":           {"GET", [][2]string{{"upgrade", "websocket"}, {"UPGRADE", "h2c"}}, 1},
		"CONNECT with a path": {"CONNECT", nil, 1},
	} {
		m := about("192.0.2.1")
		m.method, m.headers = row.method, append(m.headers, row.lines...)

		set := h.ask(m)
		if set["decided"].number != 1 || set["over"].number != row.over || row.over == 1 &&
			set["status"].number != 400 {
			t.Errorf("%s: %s", name, text(set))
		}
	}
}

// A protocol that is named is one, and websocket is none then.
func TestServerPassesNamedUpgrades(t *testing.T) {
	h := greeted(t, open(t, quiet, func(_ *callers.Options, o *Options) { o.Upgrades = []string{"mqtt"} }))
	for name, over := range map[string]uint64{"MQTT": 0, "websocket": 1} {
		m := about("192.0.2.1")
		m.headers = append(m.headers, [2]string{"upgrade", name})
		if set := h.ask(m); set["over"].number != over {
			t.Errorf("%s: %s", name, text(set))
		}
	}
}

// HAProxy knows no path of a target that is not one. A client can send these, so they are no
// mistake of the operator.
func TestServerAnswersRequestsWithoutAPath(t *testing.T) {
	log := new(test.Log)
	h := greeted(t, open(t, slog.New(slog.NewTextHandler(log, nil)), nil, shop("api", "1/1h")))
	for method, want := range map[string]uint64{"OPTIONS": 0, "GET": 400, "CONNECT": 400} {
		m := about("192.0.2.1")
		m.method, m.path = method, ""
		if set := h.ask(m); set["decided"].number != 1 || set["status"].number != want {
			t.Errorf("%s: %s", method, text(set))
		}
	}
	if text := log.String(); strings.Contains(text, "ERROR") {
		t.Error(text)
	}
}

// Messages that come after a change are decided by it, on the connections that there are.
func TestServerTakesOtherCallersAndUpgrades(t *testing.T) {
	p := shop("api", "1/1h")
	p.Plans, p.PlanBy = map[string]core.Limit{"pro": core.MustParseLimit("1000/1h")}, callers.PlanBy
	s := open(t, quiet, nil, p)
	h := greeted(t, s)
	over := func(name, value string) uint64 {
		m := about("192.0.2.1")
		m.headers = append(m.headers, [2]string{name, value})
		return h.ask(m)["over"].number
	}
	before := []uint64{over("x-plan", "pro"), over("x-plan", "pro"), over("upgrade", "mqtt")}
	if !slices.Equal(before, []uint64{0, 1, 1}) {
		t.Errorf("before: %v", before)
	}

	// HAProxy's client is a proxy from here on.

	know, err := callers.New(callers.Options{Trusted: []string{"192.0.2.1"}, PlanHeader: "X-Plan"})
	if err != nil {
		t.Fatal(err)
	}
	s.Trust(know, []string{"mqtt"})
	if got := over("x-plan", "pro"); got != 0 {
		t.Errorf("a plan of a trusted proxy: %d", got)
	}
	m := about("192.0.2.1")
	m.headers = append(m.headers, [2]string{"upgrade", "mqtt"}, [2]string{"x-plan", "pro"})
	if set := h.ask(m); set["over"].number != 0 {
		t.Errorf("mqtt: %s", text(set))
	}
}
