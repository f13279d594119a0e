package policy_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

const byClaims = `
policies:
- name: free-exports
  apps: [shop]
  key: ip
  limit: 1/1h fixed-window
  match:
    query: {export: [csv, xlsx]}
    claims: {plan: free}
`

type token struct{} // the authentication puts the claims of a verified token under this key

func claimsIn(ctx context.Context) map[string]any {
	claims, _ := ctx.Value(token{}).(map[string]any)
	return claims
}

// A policy applies by what a token says, and by the query. The program verifies the token.
func ExampleBindings_claims() {
	bindings := policy.Bindings{
		Claims: func(r core.Request) map[string]any { return claimsIn(r.Context()) },
	}

	set, err := policyyaml.Decode([]byte(byClaims))
	if err != nil {
		fmt.Println(err)
		return
	}
	compiled, err := policy.Compile("shop", set, bindings)
	if err != nil {
		fmt.Println(err)
		return
	}
	server := nethttp.New(limiter.MustNew(limiter.Config{Rules: compiled.Rules()}))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	ask := func(plan, target string) {
		r := httptest.NewRequest("GET", target, nil)
		r = r.WithContext(context.WithValue(r.Context(), token{}, map[string]any{"plan": plan}))
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Println(plan, target, w.Code)
	}

	ask("free", "/orders?export=csv")
	ask("free", "/orders?export=xlsx")
	ask("free", "/orders")
	ask("pro", "/orders?export=csv")
	fmt.Println(set[0].Describe())
	// Output:
	// free /orders?export=csv 200
	// free /orders?export=xlsx 429
	// free /orders 200
	// pro /orders?export=csv 200
	// 1 request an hour with the parameter export: csv or xlsx and the claim plan: free for each address, counted in windows that begin with a request; others are refused
}
