package mcpmw_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/adapters/mcpmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

// Each user may call each tool five times a minute.
func Example() {
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1.0.0"}, nil)

	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "tool", Key: keyfuncs.Join(mcpmw.User, mcpmw.Tool), Limit: core.MustParseLimit("5/1m")},
	}})
	server.AddReceivingMiddleware(mcpmw.New(l))
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	http.Handle("/mcp", mcpmw.Handler(h))
	// Output:
}

// The error of a refused call says which rule refused it, and when to come again.
func ExampleNew() {
	l := limiter.MustNew(limiter.Config{
		Rules: []limiter.Rule{{Name: "everyone", Key: keyfuncs.Global,
			Limit: core.MustParseLimit("1/1h fixed-window")}},
		Logger: slog.New(slog.DiscardHandler),
	})
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1.0.0"}, nil)
	server.AddTool(&mcp.Tool{Name: "buy", InputSchema: map[string]any{"type": "object"}},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
	server.AddReceivingMiddleware(mcpmw.New(l))

	// A program serves stdio or HTTP instead.
	ctx := context.Background()
	serverEnd, clientEnd := mcp.NewInMemoryTransports()
	if _, err := server.Connect(ctx, serverEnd, nil); err != nil {
		panic(err)
	}

	client := mcp.NewClient(&mcp.Implementation{Name: "buyer", Version: "1.0.0"}, nil)
	session, err := client.Connect(ctx, clientEnd, nil)
	if err != nil {
		panic(err)
	}
	defer session.Close()

	for range 2 {
		_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "buy"})
		var refused *jsonrpc.Error
		if errors.As(err, &refused) {
			fmt.Println(refused.Code, string(refused.Data))
		} else {
			fmt.Println(err)
		}
	}
	// Output:
	// <nil>
	// -32023 {"retryAfter":3600,"rules":["everyone"]}
}

// The lists are counted too. Tools that the server does not have share one count.
func ExampleConfig() {
	tools := map[string]bool{"search": true, "buy": true}
	config := mcpmw.Config{
		Methods: []string{"tools/call", "tools/list"},
		Known:   func(c *mcpmw.Call) bool { return tools[c.Name()] },
	}
	fmt.Println(config.Methods)
	// Output: [tools/call tools/list]
}

// A search costs one unit, and a picture fifty.
func ExampleToolCosts() {
	rule := limiter.Rule{
		Name:  "units",
		Key:   mcpmw.User,
		Limit: core.MustParseLimit("1000/1h"),
		Cost:  mcpmw.ToolCosts(map[string]int64{"picture": 50}),
	}
	fmt.Println(rule.Limit)
	// Output: 1000/1h
}

// A client sees why it was refused over HTTP, too.
func ExampleTransport() {
	transport := &mcp.StreamableClientTransport{
		Endpoint:   "http://127.0.0.1:8080/mcp",
		HTTPClient: &http.Client{Transport: mcpmw.Transport(nil)},
	}
	fmt.Println(transport.Endpoint)
	// Output: http://127.0.0.1:8080/mcp
}
