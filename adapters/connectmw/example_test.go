package connectmw_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/adapters/connectmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

func ExampleNew() {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "peer", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("2/1h fixed-window")},
	}})
	limit := connectmw.New(l)
	const upper = "/text.v1.Text/Upper"
	mux := http.NewServeMux()
	mux.Handle(upper, connect.NewUnaryHandler(upper,
		func(_ context.Context,
			req *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
			return connect.NewResponse(req.Msg), nil
		},
		connect.WithInterceptors(limit)))

	server := httptest.NewServer(mux)
	defer server.Close()
	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+upper)
	for range 3 {
		_, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("hello")))
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// resource_exhausted: over the limit of "peer"; retry after 3600 seconds
}

// A client waits as long as a server asks it to, but no longer than five seconds.
func ExampleNewRetry() {
	retry, err := connectmw.NewRetry(connectmw.Retry{MaxWait: 5 * time.Second})
	if err != nil {
		panic(err)
	}
	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](http.DefaultClient,
		"http://127.0.0.1:8080/text.v1.Text/Upper", connect.WithInterceptors(retry))
	fmt.Println(client != nil)
	// Output: true
}

// Attempts that end with unauthenticated count, and others do not.
func ExampleRefundIf() {
	rule := limiter.Rule{
		Name:     "logins",
		Key:      keyfuncs.RemoteIP,
		Limit:    core.MustParseLimit("5/15m sliding-log"),
		RefundIf: connectmw.RefundIf(func(c connect.Code) bool { return c != connect.CodeUnauthenticated }),
	}
	fmt.Println(rule.RefundIf(200), rule.RefundIf(401))
	// Output: true false
}

// A server admits 100 calls a minute from each address.
func Example() {
	const upper = "/text.v1.Text/Upper"
	type text = wrapperspb.StringValue
	toUpper := func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		return connect.NewResponse(wrapperspb.String(strings.ToUpper(r.Msg.Value))), nil
	}

	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "peer", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
	}})
	limit := connect.WithInterceptors(connectmw.New(l))
	mux := http.NewServeMux()
	mux.Handle(upper, connect.NewUnaryHandler(upper, toUpper, limit))

	server := httptest.NewServer(mux)
	defer server.Close()
	client := connect.NewClient[text, text](server.Client(), server.URL+upper)
	answer, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("hello")))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Msg.Value)
	// Output: HELLO
}
