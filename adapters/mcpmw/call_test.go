package mcpmw_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/adapters/mcpmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

// logged has the limiter write to the log.
func logged(log *test.Log) func(*limiter.Config) {
	return func(c *limiter.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) }
}

// codeOf returns the code of an error, 0 for none, and 1 for an error without one.
func codeOf(err error) int64 {
	var coded *jsonrpc.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.Code
	}
	return 1
}

// pass asks a middleware about a call.
func pass(t testing.TB, m mcp.Middleware, method string, r mcp.Request) int64 {
	t.Helper()
	next := func(context.Context, string, mcp.Request) (mcp.Result, error) { return &mcp.CallToolResult{}, nil }
	_, err := m(next)(t.Context(), method, r)
	return codeOf(err)
}

// overHTTP gives a call the token of a user, unless that is "", and headers.
func overHTTP(r *mcp.CallToolRequest, user string) *mcp.CallToolRequest {
	r.Extra = &mcp.RequestExtra{Header: http.Header{}}
	if user != "" {
		r.Extra.TokenInfo = &auth.TokenInfo{UserID: user}
	}
	return r
}

const limited = mcpmw.CodeRateLimited

func TestKeys(t *testing.T) {
	session := &mcp.ServerSession{}
	prompt := func(name string) mcp.Request {
		return &mcp.GetPromptRequest{Session: session, Params: &mcp.GetPromptParams{Name: name}}
	}
	resource := func(uri string) mcp.Request {
		return &mcp.ReadResourceRequest{Session: session, Params: &mcp.ReadResourceParams{URI: uri}}
	}
	long := strings.Repeat("x", 1<<20)

	type step struct {
		method  string
		request mcp.Request
		want    int64
	}
	of := func(user, tool string, want int64) step {
		return step{"tools/call", overHTTP(toolCall(tool, 0), user), want}
	}

	// The limit is one call for each key.
	for name, row := range map[string]struct {
		key   core.KeyFunc
		steps []step
	}{
		"user": {mcpmw.User, []step{
			of("ann", "a", 0), of("ann", "b", limited), of("bob", "a", 0), of("", "a", 0), of("", "a", limited),
			of(long, "a", 0), of(long, "a", limited), of(long+"y", "a", 0),
		}},
		"user and tool": {keyfuncs.Join(mcpmw.User, mcpmw.Tool), []step{
			of("ann", "a", 0), of("ann", "b", 0), of("ann", "a", limited), of("bob", "a", 0),
			{"prompts/get", prompt("a"), 0}, {"prompts/get", prompt("a"), 0},
		}},
		"tool": {mcpmw.Tool, []step{
			of("ann", "a", 0), of("bob", "a", limited), of("ann", long, 0), of("ann", long, limited),
			of("ann", long+"y", 0), of("ann", "sha256:a", 0), of("ann", "sha256:a", limited), of("ann", "", 0),
			of("ann", "", limited),
		}},
		"prompt": {mcpmw.Prompt, []step{
			{"prompts/get", prompt("a"), 0}, {"prompts/get", prompt("a"), limited}, {"prompts/get", prompt("b"), 0},
			of("ann", "a", 0), of("ann", "a", 0),
		}},
		"resource": {mcpmw.Resource, []step{
			{"resources/read", resource("file:///a"), 0}, {"resources/read", resource("file:///a"), limited},
			{"resources/read", resource("file:///b"), 0}, {"resources/read", resource(""), 0},
		}},
		"method": {keyfuncs.Route, []step{
			of("ann", "a", 0), of("ann", "b", limited),
			{"prompts/get", prompt("a"), 0}, {"prompts/get", prompt("b"), limited},
		}},

		// Without HTTP the session is the user. Without an ID each session has a key of its own.
		"session": {mcpmw.Session, []step{
			{"prompts/get", prompt("a"), 0}, {"prompts/get", prompt("b"), limited}, {"tools/call", toolCall("a", 0), 0},
		}},
		"user without HTTP": {mcpmw.User, []step{
			{"prompts/get", prompt("a"), 0}, {"prompts/get", prompt("b"), limited}, {"tools/call", toolCall("a", 0), 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rule("1/1h fixed-window")
			r.Key = row.key
			m := mcpmw.New(newLimiter(t, r))

			for i, s := range row.steps {
				if got := pass(t, m, s.method, s.request); got != s.want {
					t.Errorf("step %d: %d, want %d", i, got, s.want)
				}
			}
			runtime.KeepAlive(session)
		})
	}
}

// A rule for tools does not apply to requests of HTTP, and the others share a key there.
func TestKeysOfOtherRequests(t *testing.T) {
	for name, row := range map[string]struct {
		key core.KeyFunc
		ok  bool
	}{
		"User": {mcpmw.User, true}, "Session": {mcpmw.Session, true}, "Tool": {mcpmw.Tool, false},
		"Prompt": {mcpmw.Prompt, false}, "Resource": {mcpmw.Resource, false},
	} {
		if key, ok := row.key(nil); key != "" || ok != row.ok {
			t.Errorf("%s: %q, %t", name, key, ok)
		}
	}
	if n := mcpmw.ToolCosts(map[string]int64{"": 5})(nil); n != 1 {
		t.Errorf("no call costs %d", n)
	}
	var none context.Context
	if r := mcpmw.Request(none); r != nil {
		t.Errorf("no context has the view %v", r)
	}
}

// Callers over HTTP who cannot be told apart share a count, and the limiter says so once.
func TestNoCaller(t *testing.T) {
	for name, row := range map[string]struct {
		key  core.KeyFunc
		user string
	}{"no token": {mcpmw.User, ""}, "no session": {mcpmw.Session, "ann"}} {
		t.Run(name, func(t *testing.T) {
			log, r := &test.Log{}, rule("2/1h fixed-window")
			r.Key = row.key
			m := mcpmw.New(newLimiter(t, r, logged(log)))

			// Each call has a session value of its own, as in a server without sessions.
			for _, want := range []int64{0, 0, limited} {
				if got := pass(t, m, "tools/call", overHTTP(toolCall("a", 0), row.user)); got != want {
					t.Errorf("%d, want %d", got, want)
				}
			}

			if text := log.String(); strings.Count(text, "code="+mcpmw.CodeNoCaller) != 1 {
				t.Errorf("logged\n%s", text)
			}
		})
	}
}

// The key of a session goes when the session goes.
func TestNamelessSessionIsForgotten(t *testing.T) {
	r := rule("1/1h fixed-window")
	keys := map[string]bool{}
	r.Key = func(r core.Request) (string, bool) {
		key, ok := mcpmw.Session(r)
		keys[key] = true
		return key, ok
	}

	m := mcpmw.New(newLimiter(t, r))
	before := mcpmw.NamelessSessions()
	for range 100 {
		pass(t, m, "tools/call", toolCall("a", 0))
	}

	// No two sessions share a key.
	if len(keys) != 100 {
		t.Errorf("%d keys", len(keys))
	}

	// Cleanups run some time after a collection.
	for range 1000 {
		runtime.GC()
		if mcpmw.NamelessSessions() <= before {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d sessions are remembered, and %d before", mcpmw.NamelessSessions(), before)
}

// Names that a client makes up count under the limit of the user, and with Known under one key.
func TestToolsThatDoNotExist(t *testing.T) {
	user, tool := rule("5/1h fixed-window"), rule("3/1h fixed-window")
	user.Name, user.Key = "user", mcpmw.User
	tool.Name, tool.Key = "tool", mcpmw.Tool

	// A function that panics knows no name.
	l := newLimiter(t, user, func(c *limiter.Config) { c.Rules = append(c.Rules, tool) })
	m := mcpmw.New(l, mcpmw.Config{Known: func(c *mcpmw.Call) bool {
		if c.Name() == "boom" {
			panic("boom")
		}
		return c.Name() == "search"
	}})

	// The first three use up what is not known, and the next three cost nothing. The user has two
	// units left then.
	want := []int64{0, 0, 0, limited, limited, limited, 0, 0, limited}
	for i, name := range []string{"a", "boom", "b", "c", "d", "boom", "search", "search", "search"} {
		if got := pass(t, m, "tools/call", overHTTP(toolCall(name, 0), "ann")); got != want[i] {
			t.Errorf("call %d of %s: %d, want %d", i, name, got, want[i])
		}
	}
}

func TestMethods(t *testing.T) {
	requests := map[string]mcp.Request{}
	for _, method := range []string{"tools/call", "resources/read", "prompts/get", "completion/complete", "initialize",
		"ping", "tools/list", "resources/list", "resources/templates/list", "prompts/list", "logging/setLevel",
		"resources/subscribe", "resources/unsubscribe", "subscriptions/listen", "server/discover", "acme/search",
		"notifications/initialized", "notifications/cancelled", "notifications/progress",
		"notifications/roots/list_changed", "sampling/createMessage", "roots/list", "elicitation/create", ""} {
		requests[method] = toolCall("a", 0)
	}

	log := &test.Log{}
	for name, row := range map[string]struct {
		config []mcpmw.Config
		want   []string
	}{
		"default": {nil, []string{"completion/complete", "prompts/get", "resources/read", "tools/call"}},
		"own": {[]mcpmw.Config{{Methods: []string{"tools/list", "acme/search", "notifications/progress", ""}}},
			[]string{"acme/search", "tools/list"}},
	} {
		t.Run(name, func(t *testing.T) {
			// No unit is left, so that a call which is counted is refused.
			l := newLimiter(t, rule("1/1h fixed-window"), logged(log))
			if _, err := l.Take(t.Context(), "", 1); err != nil {
				t.Fatal(err)
			}

			m, got := mcpmw.New(l, row.config...), []string(nil)
			for method, r := range requests {
				if pass(t, m, method, r) == limited {
					got = append(got, method)
				}
			}

			slices.Sort(got)
			if !slices.Equal(got, row.want) {
				t.Errorf("counted %q, want %q", got, row.want)
			}
		})
	}

	// The log quotes the text once more.
	for _, method := range []string{"notifications/progress", ""} {
		want := fmt.Sprintf("Config.Methods: %q is no method with an answer, and is not counted", method)
		if !strings.Contains(strings.ReplaceAll(log.String(), `\`, ""), want) {
			t.Errorf("logged\n%s\nwithout %s", log, want)
		}
	}
}

func TestToolCosts(t *testing.T) {
	r := rule("10/1h fixed-window")
	r.Cost = mcpmw.ToolCosts(map[string]int64{"video": 8, "free": 0})
	l := newLimiter(t, r)
	m := mcpmw.New(l)
	for _, s := range []struct {
		tool string
		want int64
	}{{"free", 0}, {"video", 0}, {"video", limited}, {"text", 0}, {"text", 0}, {"text", limited}, {"free", 0}} {
		if got := pass(t, m, "tools/call", toolCall(s.tool, 0)); got != s.want {
			t.Errorf("%s: %d, want %d", s.tool, got, s.want)
		}
	}
}

// Policies match tools as paths, and a policy for a method applies to all of its names.
func TestPolicies(t *testing.T) {
	of := func(name, path, limit string) policy.Policy {
		return policy.Policy{Name: name, Apps: []string{"app"}, Limit: core.MustParseLimit(limit), Key: "global",
			Match: policy.Match{Path: path}}
	}
	compiled, err := policy.Compile("app", []policy.Policy{
		of("search", "/tools/call/search", "1/1h fixed-window"), of("tools", "/tools/call/", "3/1h fixed-window"),
		of("files", "/resources/read/", "1/1h fixed-window"),
	}, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}

	m := mcpmw.New(newLimiter(t, rule("1/1h"), func(c *limiter.Config) { c.Rules = compiled.Rules() }))
	params := &mcp.ReadResourceParams{URI: "file:///a/b"}
	read := &mcp.ReadResourceRequest{Session: &mcp.ServerSession{}, Params: params}

	// A name with dots escapes from no policy.
	for i, s := range []struct {
		method  string
		request mcp.Request
		want    int64
	}{
		{"tools/call", toolCall("search", 0), 0}, {"tools/call", toolCall("search", 0), limited},
		{"tools/call", toolCall("a", 0), 0}, {"tools/call", toolCall("a/../b", 0), 0},
		{"tools/call", toolCall("../../prompts/get", 0), limited},
		{"resources/read", read, 0}, {"resources/read", read, limited},
	} {
		if got := pass(t, m, s.method, s.request); got != s.want {
			t.Errorf("step %d: %d, want %d", i, got, s.want)
		}
	}
}

// Rules get a status for each way in which a call ends.
func TestStatus(t *testing.T) {
	for name, row := range map[string]struct {
		result mcp.Result
		err    error
		want   int
	}{
		"a result":            {&mcp.CallToolResult{}, nil, 200},
		"a nil result":        {(*mcp.CallToolResult)(nil), nil, 200},
		"a prompt":            {&mcp.GetPromptResult{}, nil, 200},
		"an error of a tool":  {&mcp.CallToolResult{IsError: true}, nil, 500},
		"invalid params":      {nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}, 422},
		"a wrapped error":     {nil, fmt.Errorf("x: %w", &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}), 404},
		"an internal error":   {nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError}, 500},
		"a limit further in":  {nil, &jsonrpc.Error{Code: limited}, 429},
		"a code of one's own": {nil, &jsonrpc.Error{Code: 7}, 520},
		"no code":             {nil, errors.New("boom"), 520},
		"a cancelled call":    {nil, context.Canceled, 499},
		"a deadline":          {nil, context.DeadlineExceeded, 504},
	} {
		t.Run(name, func(t *testing.T) {
			got := 0
			r := rule("9/1h")

			// The rule hears of the status before the client has its answer.
			r.RefundIf = func(status int) bool {
				got = status
				return false
			}
			f := mcpmw.New(newLimiter(t, r))(func(context.Context, string, mcp.Request) (mcp.Result, error) {
				return row.result, row.err
			})

			if _, err := f(t.Context(), "tools/call", toolCall("a", 0)); !errors.Is(err, row.err) {
				t.Errorf("the error became %v", err)
			}
			if got != row.want {
				t.Errorf("%d, want %d", got, row.want)
			}
		})
	}
}

// The SDK does not recover from a panic.
func TestAnswerThatPanicsIsThatOfTheLimiter(t *testing.T) {
	log := &test.Log{}
	refuse := func(*mcpmw.Call, *limiter.Admission) error { panic("of the program") }
	m := mcpmw.New(newLimiter(t, rule("1/1h"), logged(log)), mcpmw.Config{Refused: refuse})
	for _, want := range []int64{0, limited} {
		if got := pass(t, m, "tools/call", toolCall("a", 0)); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
	if !strings.Contains(log.String(), "Config.Refused") {
		t.Errorf("the log is %q", log.String())
	}
}

// The error has nothing of what the client sent.
func TestErrorOnTheWire(t *testing.T) {
	m := mcpmw.New(newLimiter(t, rule("1/1h fixed-window")))
	next := func(context.Context, string, mcp.Request) (mcp.Result, error) { return &mcp.CallToolResult{}, nil }
	var last error
	for range 2 {
		_, last = m(next)(t.Context(), "tools/call", toolCall("\"\x00<script>", 0))
	}

	got, err := json.Marshal(last)
	const want = `{"code":-32023,"message":"over the limit of \"a\"; retry after 3600 seconds",` +
		`"data":{"retryAfter":3600,"rules":["a"]}}`
	if err != nil || !bytes.Equal(got, []byte(want)) {
		t.Errorf("%s, %v, want\n%s", got, err, want)
	}
}

// A name of ten megabytes has a short key, which is that of no other name.
func TestKeysAreBounded(t *testing.T) {
	key, r := "", rule("9/1h")
	r.Key = func(r core.Request) (string, bool) {
		key, _ = mcpmw.Tool(r)
		return key, true
	}
	m := mcpmw.New(newLimiter(t, r))

	// Up to 128 bytes a key can be read. One that looks like a digest is none.
	long := strings.Repeat("x", 10<<20)
	digest := "sha256:" + keyfuncs.Digest(long)
	for name, want := range map[string]string{
		"search": "search", long[:128]: long[:128], long[:129]: "sha256:" + keyfuncs.Digest(long[:129]), long: digest,
		digest: "sha256:" + keyfuncs.Digest(digest),
	} {
		if pass(t, m, "tools/call", toolCall(name, 0)); key != want {
			t.Errorf("%.20s has the key %.80s, want %.80s", name, key, want)
		}
	}
}
