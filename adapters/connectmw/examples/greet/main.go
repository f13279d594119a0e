// Greet is a server of Connect that limits calls by address. Calls that it cannot answer do
// not count:
//
//	go -C adapters/connectmw run ./examples/greet
//	curl -i -H 'Content-Type: application/json' -d '"Ann"' \
//	  http://127.0.0.1:8080/greet.v1.Greet/Hello
//
// The sixth call within ten seconds gets a 429 with Retry-After, and the code
// resource_exhausted with its details. Clients of gRPC get the same by HTTP/2.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/adapters/connectmw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

const hello = "/greet.v1.Greet/Hello"

func main() {
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: handler("5/10s"), Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	log.Fatal(server.ListenAndServe())
}

func handler(limit string) http.Handler {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{{
		Name: "address", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit(limit),
		RefundIf: connectmw.RefundIf(func(c connect.Code) bool { return c == connect.CodeInvalidArgument }),
	}}})
	mux := http.NewServeMux()
	mux.Handle(hello, connect.NewUnaryHandler(hello, greet, connect.WithInterceptors(connectmw.New(l))))
	return mux
}

type text = wrapperspb.StringValue

func greet(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
	if r.Msg.Value == "" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("a name is missing"))
	}
	return connect.NewResponse(wrapperspb.String("hello " + r.Msg.Value)), nil
}
