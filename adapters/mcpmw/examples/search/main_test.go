package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/adapters/mcpmw"
)

// asServer has the test binary be the program.
const asServer = "SEARCH_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// wantFive fails the test unless five calls of a session pass and the sixth is refused.
func wantFive(t *testing.T, transport mcp.Transport) {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	// The text comes back in the answer.
	call := &mcp.CallToolParams{Name: "search", Arguments: query{"x"}}
	for range 5 {
		res, err := s.CallTool(t.Context(), call)
		if err != nil || res.Content[0].(*mcp.TextContent).Text != "no page has x" {
			t.Fatalf("%+v, %v", res, err)
		}
	}

	_, err = s.CallTool(t.Context(), call)
	var refused *jsonrpc.Error
	if !errors.As(err, &refused) || refused.Code != mcpmw.CodeRateLimited ||
		!strings.Contains(string(refused.Data), `"rules":["tool"]`) {
		t.Errorf("the sixth call: %v", err)
	}
}

// The server is a process of its own, which is asked over its standard input and output.
func TestStdio(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asServer+"=1")
	cmd.Stderr = os.Stderr
	wantFive(t, &mcp.CommandTransport{Command: cmd})
}

// statuses counts the answers with the status 429.
type statuses struct{ refused atomic.Int64 }

func (s *statuses) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "" {
		s.refused.Add(1)
	}
	return resp, err
}

func TestHTTP(t *testing.T) {
	web := httptest.NewServer(handler(server("5/1h fixed-window")))
	t.Cleanup(web.Close)
	seen := &statuses{}
	wantFive(t, &mcp.StreamableClientTransport{
		Endpoint: web.URL, HTTPClient: &http.Client{Transport: mcpmw.Transport(seen)},
	})
	if n := seen.refused.Load(); n != 1 {
		t.Errorf("%d answers had the status 429", n)
	}
}

func TestAsk(t *testing.T) {
	web := httptest.NewServer(handler(server("1/1h fixed-window")))
	t.Cleanup(web.Close)
	if err := run(t.Context(), strings.TrimPrefix(web.URL, "http://"), 2); err != nil {
		t.Error(err)
	}
	t.Setenv(asServer, "1")
	if err := run(t.Context(), "", 2); err != nil {
		t.Error(err)
	}
}
