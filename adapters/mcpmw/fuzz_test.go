package mcpmw_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/adapters/mcpmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

// FuzzCall makes each call twice. The second is refused, whatever the client has sent: the
// keys of both are the same, and no key function fails.
func FuzzCall(f *testing.F) {
	f.Add("search", "X-User", "ann", "192.0.2.1:50000", "ann")
	f.Add("", "Headgate Arrival", "", "", "")
	f.Add("../../prompts/get/x", "Host", "\x00\r\n", "@", "\xff|\\")
	f.Add("sha256:", "headgate arrival", "1", "[::1", "sha256:")

	// Each reads another part of what a client chooses.
	keys := []core.KeyFunc{keyfuncs.RemoteIP, keyfuncs.Route, keyfuncs.Path, keyfuncs.Method, keyfuncs.Host,
		keyfuncs.MustForwardedIP(keyfuncs.Proxies{Trusted: keyfuncs.Private()}), keyfuncs.Header("X-User"),
		keyfuncs.BearerToken, mcpmw.User, mcpmw.Session, mcpmw.Tool}

	f.Fuzz(func(t *testing.T, tool, name, value, addr, user string) {
		r := rule("1/1h fixed-window")
		r.Key = keyfuncs.Join(keys...)
		m := mcpmw.New(newLimiter(t, r, func(c *limiter.Config) {
			c.OnError = func(_ context.Context, err error) { t.Error(err) }
		}))

		// A seed has the name of what Handler notes, which no client can send.
		call := overHTTP(toolCall(tool, 0), user)
		call.Extra.Header[name] = []string{value, addr, "host"}
		for _, want := range []int64{0, limited} {
			if got := pass(t, m, "tools/call", call); got != want {
				t.Errorf("%d, want %d", got, want)
			}
		}
	})
}

// FuzzErrorIn has an answer of JSON-RPC as an event, as the SDK writes it, and as it is.
func FuzzErrorIn(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32023,"message":"no"}}`), "3_0")
	f.Add([]byte(`{"jsonrpc":"2.0","id":"data: x\n\n","error":{}}`), "")
	f.Add([]byte(`{"method":"notifications/message","error":1}`), "a\ndata: {}")
	f.Add([]byte(`[{"error":{}}]`), "")
	f.Add([]byte("{}\ndata:"), ":")
	f.Fuzz(func(t *testing.T, message []byte, id string) {
		plain, ok := mcpmw.ErrorIn(message)
		if ok && !json.Valid(plain) {
			t.Errorf("%q is not JSON", plain)
		}
		if bytes.ContainsAny(message, "\n\r") || strings.ContainsAny(id, "\n\r") {
			return
		}

		// The SDK writes an event for each message, with an ID if it has an event store.
		event := []byte("event: message\nid: " + id + "\ndata: " + string(message) + "\n\n")
		if data, same := mcpmw.ErrorIn(event); same != ok || ok && !bytes.Equal(data, plain) {
			t.Errorf("as an event it is %q, %t, and else %q, %t", data, same, plain, ok)
		}
	})
}

// FuzzHTTP posts what a client may send to a server that refuses all calls of tools. An answer
// with the status 429 is an error of JSON-RPC with the ID of the call, and a call is never served.
func FuzzHTTP(f *testing.F) {
	for _, body := range hostileBodies {
		f.Add([]byte(body), "2025-11-25")
	}
	f.Add([]byte(callOf("1")), "")
	f.Add([]byte(callOf("1.5")), "2025-06-18") // which the SDK takes for 1
	f.Add([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`), "2026-07-28")

	handler := refusing(f, true, func() { panic("a tool was called") })
	f.Fuzz(func(t *testing.T, body []byte, version string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", bytes.NewReader(body))
		r.Header = http.Header{"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"},
			"Mcp-Protocol-Version": {version}}
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusTooManyRequests {
			return
		}

		// Other statuses are the SDK's, for what it does not take for a call.
		message, err := jsonrpc.DecodeMessage(w.Body.Bytes())
		answer, ok := message.(*jsonrpc.Response)
		if err != nil || !ok || codeOf(answer.Error) != limited || w.Header().Get("Retry-After") != "3600" {
			t.Errorf("the answer is %q, %v", w.Body, err)
		}
	})
}

// refusing returns the handler of a server without sessions, whose limiter refuses all calls of
// the tool "say". Its answers are JSON or events.
func refusing(t testing.TB, inJSON bool, called func()) http.Handler {
	t.Helper()
	s := newServer(adapterspec.RPCApp{Limiter: exhausted(t), Say: func(context.Context, string) (string, error) {
		called()
		return "", nil
	}}, nil)

	return mcpmw.Handler(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: inJSON, Logger: slog.New(slog.DiscardHandler)}))
}

// callOf returns a call of the tool "say" with an ID in JSON.
func callOf(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"say","arguments":{}}}`
}

// hostileBodies have a call each, which a server may take or not.
var hostileBodies = []string{
	callOf(`1`), callOf(`"1"`), callOf(`"\"}\n\ndata: {}"`), callOf(`""`), callOf(`-1`), callOf(`0`),
	callOf(`9007199254740993`), callOf(`1e400`), callOf(`null`), callOf(`true`), callOf(`{}`), callOf(`[1]`),
	callOf(`"` + strings.Repeat("x", 1<<20) + `"`), callOf(`"\u0000\ud800"`), "\n\t " + callOf(`2`),
	`[` + callOf(`1`) + `]`, ` [` + callOf(`1`) + `,` + callOf(`2`) + `]`, `[]`, `{}`, ``, `null`, "\ufeff" + callOf(`1`),
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","name":"other"}}`,
	`{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"say"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}`, `{"jsonrpc":"2.0","method":"tools/call","params":{}}`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`,
	`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32023,"message":""}}`,
}
