package mcpmw_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/adapters/mcpmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// dataOf returns the data of an error, which is zero without any.
func dataOf(err *jsonrpc.Error) (data mcpmw.RateLimitedData) {
	if err.Data != nil {
		if err := json.Unmarshal(err.Data, &data); err != nil {
			panic(err)
		}
	}
	return data
}

func rule(limit string) limiter.Rule {
	return limiter.Rule{Name: "a", Limit: core.MustParseLimit(limit), Key: keyfuncs.Global}
}

// newLimiter returns a limiter with one rule in memory, on a clock that stands still.
func newLimiter(t testing.TB, r limiter.Rule, changes ...func(*limiter.Config)) *limiter.Limiter {
	t.Helper()
	c := limiter.Config{Rules: []limiter.Rule{r}}
	for _, change := range changes {
		change(&c)
	}
	return gatetest.Limiter(t, c)
}

// toolCall returns a call in a session of its own, which has no ID, with arguments of n bytes.
func toolCall(name string, n int) *mcp.CallToolRequest {
	raw := json.RawMessage(`"` + strings.Repeat("x", n) + `"`)
	return &mcp.CallToolRequest{
		Session: &mcp.ServerSession{}, Params: &mcp.CallToolParamsRaw{Name: name, Arguments: raw},
	}
}
