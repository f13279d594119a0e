//go:build !race

package mcpmw_test

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/adapters/mcpmw"
	"github.com/headgate/headgate/keyfuncs"
)

func handle(context.Context, string, mcp.Request) (mcp.Result, error) { return done, nil }

var done = &mcp.CallToolResult{}

// calling returns a function that calls a tool with arguments of n bytes, by way of a limiter that
// counts by user and tool.
func calling(t testing.TB, limit string, n int) func() {
	r := rule(limit)
	r.Key = keyfuncs.Join(mcpmw.User, mcpmw.Tool)
	f := mcpmw.New(newLimiter(t, r))(handle)
	ctx, req := context.Background(), toolCall("search", n)
	return func() {
		if _, err := f(ctx, "tools/call", req); err != nil {
			panic(err)
		}
	}
}

// Under the race detector a sync.Pool drops some items. What a call carries is not copied.
func TestAllocations(t *testing.T) {
	for _, size := range []int{0, 10 << 20} {
		f := calling(t, "1000000/1m", size)
		for range 1000 { // the first calls, which are examined for mistakes
			f()
		}

		// The exchange, the context, and the text of the joined key.
		const want = 3
		if got := testing.AllocsPerRun(1000, f); got != want {
			t.Errorf("%v allocations for a call of %d bytes, want %d", got, size, want)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	f := calling(b, "1000000000/1m", 0)
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
}
