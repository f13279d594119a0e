package mcpmw_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/adapters/mcpmw"
	"github.com/headgate/headgate/core"
)

// through serves a POST by Handler around h, which gets a call that came in it.
func through(t testing.TB, h func(http.ResponseWriter, *mcp.CallToolRequest)) *httptest.ResponseRecorder {
	t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
	before := len(r.Header)
	mcpmw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := toolCall("a", 0)
		call.Extra = &mcp.RequestExtra{Header: r.Header}
		h(w, call)
	})).ServeHTTP(w, r)

	// The handlers around see nothing of what is noted for the middleware.
	if len(r.Header) != before {
		t.Errorf("the request has the headers %v", r.Header)
	}
	return w
}

const (
	failure = `{"jsonrpc":"2.0","id":1,"error":{"code":-32023,"message":"no"}}`
	notice  = `{"jsonrpc":"2.0","method":"notifications/message","params":{},"error":1}`
)

// The first message of a refused call has the status of the refusal, if it is an error.
func TestFirstMessage(t *testing.T) {
	const prime = "event: prime\n\n"
	event := func(data string) string { return "event: message\nid: 3_0\ndata: " + data + "\n\n" }
	for name, row := range map[string]struct {
		header   int // what the SDK sets itself, or 0
		messages []string
		status   int
		body     string
	}{
		"an event":           {0, []string{event(failure)}, 429, failure},
		"JSON":               {0, []string{failure}, 429, failure},
		"a status":           {400, []string{failure}, 429, failure},
		"a notice":           {0, []string{event(notice), event(failure)}, 200, event(notice) + event(failure)},
		"a prime event":      {0, []string{prime, event(failure)}, 200, prime + event(failure)},
		"a batch":            {0, []string{"[" + failure + "]"}, 200, "[" + failure + "]"},
		"nothing":            {0, []string{""}, 200, ""},
		"no JSON":            {0, []string{"Bad Request"}, 200, "Bad Request"},
		"an error and more":  {0, []string{failure, "more"}, 429, failure + "more"},
		"an error that ends": {0, []string{failure[:20]}, 200, failure[:20]},
	} {
		t.Run(name, func(t *testing.T) {
			m := mcpmw.New(exhausted(t))

			w := through(t, func(w http.ResponseWriter, call *mcp.CallToolRequest) {
				if got := pass(t, m, "tools/call", call); got != limited {
					t.Errorf("the call ended with %d", got)
				}
				if row.header != 0 {
					w.WriteHeader(row.header)
				}

				// A writer says that it has written all that it was given, or why not.
				for _, text := range row.messages {
					if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
						t.Errorf("wrote %d of %d bytes, %v", n, len(text), err)
					}
				}
			})

			if w.Code != row.status || w.Body.String() != row.body {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, row.status, row.body)
			}
		})
	}
}

// A call that is decided after its request has ended leaves the answer alone: net/http may use
// the headers for another.
func TestDecisionAfterTheEnd(t *testing.T) {
	entered, leave, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := rule("9/1h")
	r.Key = func(core.Request) (string, bool) {
		close(entered)
		<-leave
		return "", true
	}

	m := mcpmw.New(newLimiter(t, r))
	w := through(t, func(_ http.ResponseWriter, call *mcp.CallToolRequest) {
		go func() {
			defer close(ended)
			pass(t, m, "tools/call", call)
		}()
		<-entered
	})

	close(leave)
	<-ended
	if len(w.Header()) != 0 {
		t.Errorf("the answer has the headers %v", w.Header())
	}
}

// What is noted without all of its parts is not what Handler has noted.
func TestNotedInPart(t *testing.T) {
	for _, noted := range [][]string{nil, {}, {"1"}, {"1", "2"}, {"1", "2", "3", "4"}, {"none", "@", ""}} {
		call := toolCall("a", 0)
		call.Extra = &mcp.RequestExtra{Header: http.Header{"headgate arrival": noted}}
		if got := pass(t, mcpmw.New(exhausted(t)), "tools/call", call); got != limited {
			t.Errorf("%q: %d", noted, got)
		}
	}
}

// A call that was cancelled while it was decided ends with that.
func TestCancelledCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := mcpmw.New(exhausted(t))(nil)(ctx, "tools/call", toolCall("a", 0))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
