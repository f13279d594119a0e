package mcpmw_test

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/adapters/mcpmw"
	"github.com/headgate/headgate/limiter"
)

// inMemory connects a client to the server.
func inMemory(t testing.TB, s *mcp.Server, c *mcp.Client) *mcp.ClientSession {
	t.Helper()
	serverEnd, clientEnd := mcp.NewInMemoryTransports()
	server, err := s.Connect(t.Context(), serverEnd, nil)
	if err != nil {
		t.Fatal(err)
	}

	// A server may ask clients of this version.
	client, err := c.Connect(t.Context(), clientEnd, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		client.Close()
		server.Wait()
	})
	return client
}

// exhausted returns a limiter without a unit left.
func exhausted(t testing.TB) *limiter.Limiter {
	t.Helper()
	l := newLimiter(t, rule("1/1h fixed-window"))
	if _, err := l.Take(t.Context(), "", 1); err != nil {
		t.Fatal(err)
	}
	return l
}

// Over a limit a session begins and goes on all the same. Only calls are refused.
func TestSessionOverTheLimit(t *testing.T) {
	progress := make(chan struct{}, 1)
	notified := func(context.Context, *mcp.ProgressNotificationServerRequest) { progress <- struct{}{} }
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"},
		&mcp.ServerOptions{ProgressNotificationHandler: notified})
	addTool(server, "say", func(_ context.Context, text string) (string, error) { return text, nil })
	server.AddReceivingMiddleware(mcpmw.New(exhausted(t)))
	s := inMemory(t, server, mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil))

	// Messages that are no calls of tools, and a notification, reach the server.
	if err := s.Ping(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if list, err := s.ListTools(t.Context(), nil); err != nil || len(list.Tools) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if err := s.NotifyProgress(t.Context(), &mcp.ProgressNotificationParams{ProgressToken: "p"}); err != nil {
		t.Error(err)
	}
	<-progress

	// A tool that does not exist is refused, not reported.
	_, err := say(t, s)
	wantRefusal(t, err)
	if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "none"}); codeOf(err) != limited {
		t.Errorf("a tool that does not exist: %v", err)
	}
}

// On the side of a client the middleware refuses nothing that servers ask it.
func TestServersAskUnlimited(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "say", InputSchema: map[string]any{"type": "object"}},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			_, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "sure?"})
			return result("ok"), err
		})
	server.AddReceivingMiddleware(mcpmw.New(newLimiter(t, rule("2/1h"))))

	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept"}, nil
		},
	})

	client.AddReceivingMiddleware(mcpmw.New(exhausted(t)))
	if _, err := say(t, inMemory(t, server, client)); err != nil {
		t.Error(err)
	}
}

// A handler is told the result, and asks by the keys of the rules, without HTTP too.
func TestHandlerOverStdio(t *testing.T) {
	r := rule("1/1h fixed-window")
	r.OnLimit, r.Key = limiter.Degrade, mcpmw.Tool
	l := newLimiter(t, r)
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	addTool(server, "say", func(ctx context.Context, _ string) (string, error) {
		list, err := l.PeekRequest(mcpmw.Request(ctx))
		if mcpmw.Request(ctx).Context() != ctx {
			t.Error("the view has another context")
		}
		if err != nil || list[0].Decision.Remaining != 0 {
			t.Errorf("%v, %v", list, err)
		}

		if limiter.Degraded(ctx) {
			return "cheap", nil
		}
		return "good", nil
	})

	// The same limiter twice counts once.
	server.AddReceivingMiddleware(mcpmw.New(l), mcpmw.New(l))
	s := inMemory(t, server, mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil))
	for _, want := range []string{"good", "cheap"} {
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "say"})
		if got := answerOf(res, err); got.Body != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
