package mcpmw_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/adapters/mcpmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/limiter"
)

func TestSpec(t *testing.T) {
	adapterspec.RunCalls(t, adapterspec.RPCFramework{
		Package: "mcpmw",
		Serve:   serve,
		User: mcpmw.Key(func(c *mcpmw.Call) (string, bool) {
			header := c.Request.GetExtra().Header
			return header.Get("X-User"), header.Get("X-Exempt") == ""
		}),
		NoRequest: mcpmw.Request(context.Background()),
		Request:   mcpmw.Request,
		Message: func(r core.Request) string {
			text, _ := mcpmw.Key(func(c *mcpmw.Call) (string, bool) {
				return textOf(c.Request.GetParams().(*mcp.CallToolParamsRaw).Arguments), true
			})(r)
			return text
		},
		NewError: func(code rpc.Code, text string) error {
			return &jsonrpc.Error{Code: int64(code), Message: text}
		},
		RefundIf: func(f func(rpc.Code) bool) func(int) bool {
			return func(status int) bool { return f(rpc.CodeOf(status)) }
		},
	})
}

// arguments are those of the tools of an App, which are called say and chat.
type arguments struct {
	Text string `json:"text"`
}

func textOf(raw json.RawMessage) string {
	var a arguments
	_ = json.Unmarshal(raw, &a) // no text without arguments
	return a.Text
}

func result(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// addTool adds a tool whose errors are those of the protocol.
func addTool(s *mcp.Server, name string, f func(context.Context, string) (string, error)) {
	s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text, err := f(ctx, textOf(r.Params.Arguments))
			if err != nil {
				return nil, err
			}
			return result(text), nil
		})
}

// newServer returns a server with the tools and the limiters of the app. opened gets a value for
// each chat that has sent a text.
func newServer(a adapterspec.RPCApp, opened chan struct{}) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	addTool(s, "say", a.Say)
	addTool(s, "chat", func(ctx context.Context, _ string) (string, error) {
		stream := &serverStream{ctx: ctx, opened: opened}
		err := a.Chat(ctx, stream)
		return stream.text, err
	})

	// The SDK does not recover from panics, and the specification has handlers that panic.
	list := []mcp.Middleware{recovering(a)} // the first is the outermost
	for _, around := range a.Around {
		list = append(list, mcpmw.New(around.Limiter, configs(around)...))
	}
	s.AddReceivingMiddleware(append(list, mcpmw.New(a.Limiter, configs(a)...))...)
	return s
}

func recovering(a adapterspec.RPCApp) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (_ mcp.Result, err error) {
			defer func() {
				if v := recover(); v != nil {
					err = &jsonrpc.Error{Code: int64(rpc.Internal), Message: "panic"}
					if a.Recovered != nil {
						a.Recovered(v)
					}
				}
			}()
			return next(ctx, method, r)
		}
	}
}

// serverStream is what stands for a stream: its last text is the result, and a second one is
// held up until the client has left.
type serverStream struct {
	ctx    context.Context
	opened chan struct{}
	text   string
}

func (s *serverStream) Send(text string) error {
	if s.text != "" {
		<-s.ctx.Done()
		return s.ctx.Err()
	}
	s.text = text
	s.opened <- struct{}{}
	return nil
}

func (s *serverStream) Recv() (string, error) { return "", io.EOF }

// configs returns what New is given for the app.
func configs(a adapterspec.RPCApp) []mcpmw.Config {
	own := func(f func(context.Context, *limiter.Admission) error) func(*mcpmw.Call, *limiter.Admission) error {
		if f == nil {
			return nil
		}
		return func(c *mcpmw.Call, admission *limiter.Admission) error { return f(c.Context, admission) }
	}
	c := mcpmw.Config{Refused: own(a.Refused), Failed: own(a.Failed)}

	if a.Skip {
		c.Skip = func(c *mcpmw.Call) bool { return adapterspec.Skips(c.Request.GetExtra().Header.Get("X-Skip")) }
	}

	// A second Config has no effect, though it would skip everything.
	if a.SecondConfig {
		return []mcpmw.Config{c, {Skip: func(*mcpmw.Call) bool { return true }}}
	}
	return []mcpmw.Config{c}
}

// serve starts a server on loopback, with answers that are events and with answers in JSON.
func serve(t testing.TB, a adapterspec.RPCApp) adapterspec.Client {
	t.Helper()
	c := &client{t: t, opened: make(chan struct{}, 100)}
	s := newServer(a, c.opened)
	c.events = connect(t, listen(t, s, nil), nil)
	c.json = connect(t, listen(t, s, &mcp.StreamableHTTPOptions{JSONResponse: true}), nil)
	return c
}

// listen has the server serve until the end of the test, and returns its address.
func listen(t testing.TB, s *mcp.Server, options *mcp.StreamableHTTPOptions) string {
	t.Helper()
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, options)
	server := httptest.NewServer(mcpmw.Handler(h))
	t.Cleanup(server.Close)
	return server.URL
}

// connect returns a session of a client that sees the errors under every status.
func connect(t testing.TB, url string, options *mcp.ClientSessionOptions) *mcp.ClientSession {
	t.Helper()
	pool := &http.Transport{}
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)

	// Without retries and a stream of the session there is one request for each call.
	session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: url, DisableStandaloneSSE: true, MaxRetries: -1,
		HTTPClient: &http.Client{Transport: mcpmw.Transport(recorder{pool})},
	}, options)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		session.Close()
		pool.CloseIdleConnections()
	})
	return session
}

// exchange is what is sent with one call, and what the answer on the wire was.
type exchange struct {
	fields []string // names and values in turns

	mu     sync.Mutex
	status int         // Guarded by mu.
	kind   string      // the content type. Guarded by mu.
	header http.Header // Guarded by mu.
}

type exchangeKey struct{}

// recorder completes the exchange of the context of a request.
type recorder struct{ next http.RoundTripper }

func (r recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	// Requests that are no calls, such as those of a session's beginning, go on as they are.
	x, ok := req.Context().Value(exchangeKey{}).(*exchange)
	if ok {
		req = req.Clone(req.Context())
		for i := 0; i < len(x.fields); i += 2 {
			req.Header.Add(x.fields[i], x.fields[i+1])
		}
	}

	resp, err := r.next.RoundTrip(req)
	if ok && err == nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.status, x.kind, x.header = resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header
	}
	return resp, err
}

// client has a session for each form of answers.
type client struct {
	t            testing.TB
	events, json *mcp.ClientSession
	opened       chan struct{}
}

func (c *client) Addr() string { return "" }

func (c *client) Say(ctx context.Context, metadata []string, text string) adapterspec.Answer {
	return c.call(ctx, c.events, metadata, "say", text)
}

func (c *client) Chat(ctx context.Context, metadata []string) (adapterspec.ClientStream, error) {
	return &clientStream{client: c, ctx: ctx, metadata: metadata}, nil
}

// clientStream is a call of the other form.
type clientStream struct {
	client   *client
	ctx      context.Context
	metadata []string
}

func (s *clientStream) Send(string) error { return errors.New("there are no streams") }
func (s *clientStream) CloseSend() error  { return nil }

// Recv makes the call and returns when the handler has sent a text.
func (s *clientStream) Recv() (string, error) {
	go s.End()
	<-s.client.opened
	return "", nil
}

func (s *clientStream) End() adapterspec.Answer {
	return s.client.call(s.ctx, s.client.json, s.metadata, "chat", "")
}

// call returns the end of a call as a client sees it.
func (c *client) call(
	ctx context.Context, session *mcp.ClientSession, fields []string, tool, text string,
) adapterspec.Answer {
	x := &exchange{fields: fields}
	res, err := session.CallTool(context.WithValue(ctx, exchangeKey{}, x),
		&mcp.CallToolParams{Name: tool, Arguments: arguments{text}})

	// The answer may come while a call that was cancelled has returned.
	x.mu.Lock()
	defer x.mu.Unlock()
	a := answerOf(res, err)

	// An error of the limiter has its own status on the wire.
	want := map[int64]int{mcpmw.CodeRateLimited: 429, mcpmw.CodeDenied: 403, mcpmw.CodeUnavailable: 503}
	var coded *jsonrpc.Error
	if errors.As(err, &coded) && want[coded.Code] != 0 &&
		(x.status != want[coded.Code] || x.kind != "application/json") {
		c.t.Errorf("the code %d came with the status %d and %s", coded.Code, x.status, x.kind)
	}

	for name, values := range x.header {
		a.AddPair(name, values)
	}
	return a
}

// answerOf returns the end of a call, with codes of gRPC for those of JSON-RPC.
func answerOf(res *mcp.CallToolResult, err error) (a adapterspec.Answer) {
	if err == nil {
		a.Body = res.Content[0].(*mcp.TextContent).Text
		return a
	}

	var coded *jsonrpc.Error
	if !errors.As(err, &coded) {
		a.Code, a.Message = rpc.Unknown, err.Error()
		return a
	}

	// The program's own codes are those of gRPC already.
	a.Code, a.Message = rpc.Code(coded.Code), coded.Message
	switch coded.Code {
	case 0: // of an error without a code
		a.Code = rpc.Unknown
	case mcpmw.CodeRateLimited:
		a.Code = rpc.ResourceExhausted
	case mcpmw.CodeDenied:
		a.Code = rpc.PermissionDenied
	case mcpmw.CodeUnavailable:
		a.Code = rpc.Unavailable
	}

	data := dataOf(coded)
	a.RetryAfter, a.Rules = seconds(data.RetryAfter), data.Rules
	return a
}
