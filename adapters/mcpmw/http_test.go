package mcpmw_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/adapters/mcpmw"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/findings"
)

// sayer returns a server with a limiter and the tool "say".
func sayer(l *limiter.Limiter) *mcp.Server {
	return newServer(adapterspec.RPCApp{
		Limiter: l, Say: func(_ context.Context, text string) (string, error) { return text, nil },
	}, nil)
}

// say calls the tool, and returns what was on the wire over HTTP.
func say(t testing.TB, s *mcp.ClientSession) (x *exchange, err error) {
	t.Helper()
	x = &exchange{}
	_, err = s.CallTool(context.WithValue(t.Context(), exchangeKey{}, x), &mcp.CallToolParams{Name: "say"})
	return x, err
}

// wantRefusal fails the test unless the error is that of the rule "a" with a limit for an hour.
func wantRefusal(t testing.TB, err error) {
	t.Helper()
	var coded *jsonrpc.Error
	if !errors.As(err, &coded) || coded.Code != limited {
		t.Fatalf("the error is %v", err)
	}
	const text = `over the limit of "a"`
	if got := fmt.Sprint(dataOf(coded)); got != "{3600 [a]}" || !strings.Contains(coded.Message, text) {
		t.Errorf("%s %q", got, coded.Message)
	}
}

// A client of the SDK sees the error and the status in each form and version, and its session
// goes on.
func TestStatusOverHTTP(t *testing.T) {
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		for _, form := range []mcp.StreamableHTTPOptions{{}, {JSONResponse: true}, {Stateless: true}} {
			name := fmt.Sprintf("%s, JSON %t, stateless %t", version, form.JSONResponse, form.Stateless)
			t.Run(name, func(t *testing.T) {
				form.Logger = slog.New(slog.DiscardHandler)
				url := listen(t, sayer(newLimiter(t, rule("1/1h fixed-window"))), &form)
				s := connect(t, url, &mcp.ClientSessionOptions{ProtocolVersion: version})

				x, err := say(t, s)
				if err != nil || x.status != 200 || x.header.Get("X-Ratelimit-Remaining") != "0" {
					t.Errorf("the first call: %v, %d, %v", err, x.status, x.header)
				}

				x, err = say(t, s)
				wantRefusal(t, err)
				if x.status != 429 || x.header.Get("Retry-After") != "3600" || x.kind != "application/json" ||
					x.header.Get("Cache-Control") != "no-cache, no-transform" {
					t.Errorf("the second call: %d, %v", x.status, x.header)
				}

				// A client that takes the status for the end of the session could not go on.
				if _, err := s.ListTools(t.Context(), nil); err != nil {
					t.Errorf("after the refusal: %v", err)
				}
			})
		}
	}
}

// The SDK's client reads no body under a 429, but keeps its session.
func TestClientWithoutTransport(t *testing.T) {
	url := listen(t, sayer(newLimiter(t, rule("1/1h fixed-window"))), nil)

	pool := &http.Transport{}
	defer pool.CloseIdleConnections()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true,
			HTTPClient: &http.Client{Transport: pool}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	// Transport is not around the pool here.
	if _, err := say(t, s); err != nil {
		t.Error(err)
	}
	if _, err := say(t, s); err == nil || !strings.Contains(err.Error(), "Too Many Requests") {
		t.Errorf("the second call: %v", err)
	}
	if _, err := s.ListTools(t.Context(), nil); err != nil {
		t.Errorf("after the refusal: %v", err)
	}
}

// Without Handler, and where it comes too late, the error comes under the status 200.
func TestStatusThatComesTooLate(t *testing.T) {
	notify := func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if s, ok := r.GetSession().(*mcp.ServerSession); ok && method == "tools/call" {
				// The context has the message sent with the answer.
				if err := s.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "p"}); err != nil {
					t.Error(err)
				}
			}
			return next(ctx, method, r)
		}
	}

	for name, row := range map[string]struct {
		around  []mcp.Middleware
		options mcp.StreamableHTTPOptions
		bare    bool
	}{
		"no Handler":           {bare: true},
		"an event store":       {options: mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)}},
		"an earlier message":   {around: []mcp.Middleware{notify}},
		"an error that is won": {around: []mcp.Middleware{asResult}},
	} {
		t.Run(name, func(t *testing.T) {
			server := sayer(newLimiter(t, rule("1/1h fixed-window")))
			server.AddReceivingMiddleware(row.around...)

			of := func(*http.Request) *mcp.Server { return server }
			var h http.Handler = mcp.NewStreamableHTTPHandler(of, &row.options)
			if !row.bare {
				h = mcpmw.Handler(h)
			}
			web := httptest.NewServer(h)
			t.Cleanup(web.Close)

			// In this version the SDK begins each answer with an event, if it has a store.
			s := connect(t, web.URL, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
			for i := range 2 {
				x, err := say(t, s)
				if x.status != 200 || x.kind != "text/event-stream" {
					t.Errorf("call %d: %d, %s", i, x.status, x.kind)
				}

				if i == 1 && name != "an error that is won" {
					wantRefusal(t, err)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// asResult makes a result of an error, for a model to read.
func asResult(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, r)
		if err != nil {
			return result(err.Error()), nil
		}
		return res, nil
	}
}

// post sends a body to a server and returns the answer.
func post(t testing.TB, url, body, version string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}

	r.Header = http.Header{"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"},
		"Mcp-Protocol-Version": {version}}

	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}

	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// Whatever the ID is, a call is refused, and the answer has the ID.
func TestHostileIDs(t *testing.T) {
	web := httptest.NewServer(refusing(t, true, func() { t.Error("a tool was called") }))
	t.Cleanup(web.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for _, body := range hostileBodies {

		// What the SDK does not take for a call is not answered as one that was made.
		resp, text := post(t, web.URL, body, "2025-06-18")
		if resp.StatusCode != 429 {
			if resp.StatusCode/100 == 2 && strings.Contains(body, "say") {
				t.Errorf("%.80q: %d %.200q", body, resp.StatusCode, text)
			}
			continue
		}

		var sent, got struct{ ID any }
		if json.Unmarshal([]byte(body), &sent) != nil || json.Unmarshal([]byte(text), &got) != nil || got != sent {
			t.Errorf("%.80q: %.200q", body, text)
		}
	}
}

// The calls of a batch have one status, so it is not that of one of them.
func TestBatch(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for _, inJSON := range []bool{false, true} {
		web := httptest.NewServer(refusing(t, inJSON, func() { t.Error("a tool was called") }))
		t.Cleanup(web.Close)

		for _, body := range []string{"[" + callOf("1") + "]", " \n[" + callOf("1") + "," + callOf("2") + "]"} {
			resp, text := post(t, web.URL, body, "2025-03-26")
			if want := strings.Count(body, "say"); resp.StatusCode != 200 || strings.Count(text, "-32023") != want {
				t.Errorf("%q: %d %q", body, resp.StatusCode, text)
			}
		}
	}
}

// No client can pretend what Handler notes.
func TestArrivalIsNotForged(t *testing.T) {
	web := httptest.NewServer(refusing(t, true, func() { t.Error("a tool was called") }))
	t.Cleanup(web.Close)
	conn, err := net.Dial("tcp", strings.TrimPrefix(web.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nheadgate arrival: 1\r\nContent-Length: 0\r\n\r\n")
	line := make([]byte, len("HTTP/1.1 400"))
	if _, err := io.ReadFull(conn, line); err != nil || string(line) != "HTTP/1.1 400" {
		t.Errorf("%q, %v", line, err)
	}
}

// Without Handler rules see no address, and the limiter says so.
func TestNoAddressWithoutHandler(t *testing.T) {
	log, r := &test.Log{}, rule("2/1h fixed-window")
	r.Key = keyfuncs.RemoteIP
	m := mcpmw.New(newLimiter(t, r, logged(log)))
	for _, want := range []int64{0, 0, limited} {
		if got := pass(t, m, "tools/call", overHTTP(toolCall("a", 0), "ann")); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
	if text := log.String(); strings.Count(text, "code="+findings.NoAddress) != 1 {
		t.Errorf("logged\n%s", text)
	}
}

// The token decides who the user is, and the session who shares a count.
func TestUsersAndSessions(t *testing.T) {
	verify := auth.RequireBearerToken(func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token}, nil
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})

	// A session is refused before its user is.
	user, session := rule("3/1h fixed-window"), rule("2/1h fixed-window")
	user.Key, session.Key, session.Name = mcpmw.User, mcpmw.Session, "b"
	l := newLimiter(t, user, func(c *limiter.Config) { c.Rules = append(c.Rules, session) })

	server := sayer(l)
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	web := httptest.NewServer(verify(mcpmw.Handler(h)))
	t.Cleanup(web.Close)

	// Each session has a connection of its own.
	as := func(user string) *mcp.ClientSession {
		pool := &http.Transport{}
		s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
			&mcp.StreamableClientTransport{Endpoint: web.URL, DisableStandaloneSSE: true,
				HTTPClient: &http.Client{Transport: mcpmw.Transport(bearer{user, pool})}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			s.Close()
			pool.CloseIdleConnections()
		})
		return s
	}

	// The second session of ann finds the unit that her first has left.
	ann, again, bob := as("ann"), as("ann"), as("bob")
	for i, step := range []struct {
		session *mcp.ClientSession
		want    string
	}{{ann, ""}, {ann, ""}, {ann, "b"}, {again, ""}, {again, "a"}, {bob, ""}, {bob, ""}, {bob, "b"}} {
		_, err := say(t, step.session)

		var coded *jsonrpc.Error
		got := ""
		if errors.As(err, &coded) {
			got = strings.Join(dataOf(coded).Rules, " ")
		}
		if got != step.want {
			t.Errorf("call %d was refused by %q, want %q", i, got, step.want)
		}
	}

	// The ID of a session is a secret, and so not its key.
	if list, err := l.Peek(t.Context(), keyfuncs.Digest(ann.ID())); err != nil || list[1].Decision.Remaining != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// bearer sends a token.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// canned answers each request with the same answer.
type canned struct {
	status     int
	kind, body string
	closed     *atomic.Int64
}

func (c canned) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.kind}}, Body: struct {
		io.Reader
		io.Closer
	}{strings.NewReader(c.body), closer{c.closed}}}, nil
}

type closer struct{ n *atomic.Int64 }

func (c closer) Close() error {
	c.n.Add(1)
	return nil
}

// Transport changes errors of JSON-RPC alone, and no body.
func TestTransport(t *testing.T) {
	const plain, kind = "text/plain", "application/json"
	for name, row := range map[string]struct {
		answer canned
		want   int
	}{
		"an error":            {canned{status: 429, kind: kind, body: failure}, 200},
		"with a charset":      {canned{status: 503, kind: kind + "; charset=utf-8", body: failure}, 200},
		"another status":      {canned{status: 403, kind: kind, body: failure}, 403},
		"another type":        {canned{status: 429, kind: plain, body: failure}, 429},
		"no type":             {canned{status: 429, body: failure}, 429},
		"a result":            {canned{status: 429, kind: kind, body: `{"jsonrpc":"2.0","id":1,"result":{}}`}, 429},
		"a problem of others": {canned{status: 429, kind: kind, body: `{"error":"slow down"}`}, 429},
		"no body":             {canned{status: 429, kind: kind}, 429},
		"a long body":         {canned{status: 429, kind: kind, body: failure + strings.Repeat(" ", 1<<20)}, 200},
		"a long other body":   {canned{status: 429, kind: kind, body: strings.Repeat("[", 1<<20)}, 429},
	} {
		t.Run(name, func(t *testing.T) {
			row.answer.closed = &atomic.Int64{}
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			resp, err := mcpmw.Transport(row.answer).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}

			// The client gets all of the body, also where it is longer than what was looked at.
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			closed := row.answer.closed.Load()
			if resp.StatusCode != row.want || string(body) != row.answer.body || err != nil || closed != 1 {
				t.Errorf("%d, %d bytes, %v, closed %d times", resp.StatusCode, len(body), err, closed)
			}
		})
	}
}
