package nethttp_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// Each request is charged an estimate of its tokens, and settled when it has ended.
func ExampleNew_settle() {
	l := limiter.MustNew(limiter.Config{
		KeepResult: true,
		Rules: []limiter.Rule{
			{Name: "requests", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("60/1m")},
			{Name: "streams", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("3 concurrent ttl=30s")},
			{Name: "tokens", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("1000/1m fixed-window debt=500"),
				Cost: func(core.Request) int64 { return 400 }, CostAtMost: true},
		},
	})

	// The handler reports what it used when it returns, however it returns.
	h := nethttp.New(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var used int64
		defer func() {
			res := limiter.FromContext(r.Context())
			if err := res.Settle(r.Context(), map[string]int64{"tokens": used}); err != nil {
				log.Print(err)
			}
		}()

		for _, n := range []int64{120, 80, 50} {
			fmt.Fprintf(w, "data: %d tokens\n\n", n)
			used += n
		}
	}))

	ask(h)
	list, err := l.Peek(context.Background(), "192.0.2.1")
	if err != nil {
		log.Fatal(err)
	}

	// Of the estimate of 400 tokens 150 came back, and the lease of the stream ended.
	for _, d := range list {
		fmt.Println(d.Rule, d.Decision.Remaining)
	}
	// Output:
	// 200 "600"
	// requests 59
	// streams 3
	// tokens 750
}
