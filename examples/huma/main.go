// Huma limits the operations of an API that is made with huma, all by address, and its search
// once more. It is a module of its own:
//
//	go -C examples/huma run .
//	curl -i http://127.0.0.1:8080/greeting/ann
//	curl -i http://127.0.0.1:8080/search
//
// Of three searches in a minute the third gets a 429. The pages of the API's documentation are
// not limited.
package main

import (
	"context"
	"log"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler())) }

type text struct{ Body string }

func handler() http.Handler {
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("Greetings", "1.0.0"))
	api.UseMiddleware(limit("all", "100/1m"))
	huma.Get(api, "/greeting/{name}", func(_ context.Context, in *struct {
		Name string `path:"name"`
	}) (*text, error) {
		return &text{"hello " + in.Name}, nil
	})
	search := func(context.Context, *struct{}) (*text, error) { return &text{"nothing found"}, nil }
	middlewares := huma.Middlewares{limit("search", "2/1m")}
	huma.Get(api, "/search", search, func(o *huma.Operation) { o.Middlewares = middlewares })
	return mux
}

// limit returns a middleware of huma: that of net/http, around the rest of an operation.
func limit(name, limit string) func(huma.Context, func(huma.Context)) {
	around := nethttp.New(limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: name, Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit(limit)},
	}}))
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		rest := func(w http.ResponseWriter, r *http.Request) { next(humago.NewContext(ctx.Operation(), r, w)) }
		around(http.HandlerFunc(rest)).ServeHTTP(w, r.WithContext(ctx.Context()))
	}
}
