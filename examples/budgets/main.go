// Budgets passes requests on to the API of a language model, within the budgets of a file of
// policies: tokens.yaml gives each API key 100000 tokens a minute and 20 dollars a month.
//
//	go run ./examples/budgets examples/budgets/tokens.yaml
//	curl -iN http://127.0.0.1:8080/v1/responses -H "Authorization: Bearer $OPENAI_API_KEY" \
//		--json '{"model": "gpt-5", "input": "Hello", "stream": true, "max_output_tokens": 500}'
package main

import (
	"context"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/filesource"
)

func main() {
	l := limiter.MustNew(limiter.Config{})
	follower, err := follow(l, os.Args[len(os.Args)-1], keyfuncs.Private())
	if err != nil {
		log.Fatal(err)
	}
	defer follower.Close()

	api := &url.URL{Scheme: "https", Host: "api.openai.com"}
	log.Print(http.ListenAndServe("127.0.0.1:8080", newHandler(l, api)))
}

// follow has the limiter follow the policies of a file. They may believe the headers of proxies.
func follow(l *limiter.Limiter, file string, proxies []string) (*policy.Follower, error) {
	source, err := filesource.New(file)
	if err != nil {
		return nil, err
	}

	// One list says whose addresses, and whose costs, are believed.
	known := keyfuncs.Proxies{Trusted: proxies}
	b := policy.Bindings{IPPrefix: func(bits int) (core.KeyFunc, error) {
		return keyfuncs.ForwardedIP(keyfuncs.Proxies{Trusted: proxies, IPv6Prefix: bits})
	}}

	if b.Trusted, err = keyfuncs.FromProxy(known); err != nil {
		return nil, err
	}
	return policy.Follow(context.Background(), l, "llm", b, source, policy.Options{})
}

// newHandler returns a proxy before the API. The limiter sees the answers as they pass.
func newHandler(l *limiter.Limiter, api *url.URL) http.Handler {
	// Events pass at once.
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(api) }}
	return nethttp.New(l)(proxy)
}
