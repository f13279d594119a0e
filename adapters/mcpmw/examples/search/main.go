// Search is an MCP server, over stdio or over HTTP, whose tools each user may call five times a
// minute, and a client that calls it until it is refused:
//
//	go -C adapters/mcpmw run ./examples/search -ask 6
//	go -C adapters/mcpmw run ./examples/search -http 127.0.0.1:8080
//	go -C adapters/mcpmw run ./examples/search -ask 6 -http 127.0.0.1:8080
//
// Without -ask and -http it serves the client that has started it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/adapters/mcpmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

func main() {
	addr := flag.String("http", "", "serve, or ask, at `address` instead of over stdio")
	n := flag.Int("ask", 0, "call a server `n` times instead")
	flag.Parse()

	if err := run(context.Background(), *addr, *n); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr string, n int) error {
	switch {
	case n > 0 && addr != "":
		return ask(ctx, &mcp.StreamableClientTransport{
			Endpoint: "http://" + addr, HTTPClient: &http.Client{Transport: mcpmw.Transport(nil)},
		}, n)
	case n > 0:
		return ask(ctx, &mcp.CommandTransport{Command: exec.Command(os.Args[0])}, n)
	case addr != "":
		return http.ListenAndServe(addr, handler(server("5/1m")))
	}
	return server("5/1m").Run(ctx, &mcp.StdioTransport{})
}

func server(limit string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "search", Version: "0.1.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "search", Description: "finds pages"}, search)

	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "tool", Key: keyfuncs.Join(mcpmw.User, mcpmw.Tool), Limit: core.MustParseLimit(limit)},
	}})
	s.AddReceivingMiddleware(mcpmw.New(l))
	return s
}

// handler serves over HTTP. Put auth.RequireBearerToken around it: without tokens all callers are
// one user.
func handler(s *mcp.Server) http.Handler {
	return mcpmw.Handler(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
}

type query struct {
	Text string `json:"text"`
}

func search(_ context.Context, _ *mcp.CallToolRequest, q query) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "no page has " + q.Text}}}, nil, nil
}

func ask(ctx context.Context, t mcp.Transport, n int) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "ask", Version: "0.1.0"}, nil)
	session, err := client.Connect(ctx, t, nil)
	if err != nil {
		return err
	}
	defer session.Close()

	// What is not refused for a while ends the program.
	for i := range n {
		_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "search", Arguments: query{"headgates"}})

		var refused *jsonrpc.Error
		switch {
		case errors.As(err, &refused) && refused.Code == mcpmw.CodeRateLimited:
			fmt.Printf("call %d: %d, %s, %s\n", i+1, refused.Code, refused.Message, refused.Data)
		case err != nil:
			return err
		default:
			fmt.Printf("call %d: ok\n", i+1)
		}
	}
	return nil
}
