package policy_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

const tariff = `
policies:
- name: api
  apps: [shop]
  key: user
  limit: 60/1h fixed-window
  plans: {free: 1000/1h fixed-window, pro: 100000/1h fixed-window}
  plan_by: user
  access:
    allow:
      networks: [10.1.0.0/16]
    deny:
      keys: [mallory]
`

type signedIn struct{} // the authentication puts the user under this key

// Each caller has the limit of a plan. Who has which plan stays in the program.
func ExampleBindings_plans() {
	plans := map[string]string{"alice": "free", "bob": "pro"}
	bindings := policy.Bindings{
		User: keyfuncs.UserID(func(ctx context.Context) (string, bool) {
			id, ok := ctx.Value(signedIn{}).(string)
			return id, ok
		}),
		Plans: map[string]policy.PlanFunc{
			"user": func(_ context.Context, user string) (string, error) { return plans[user], nil },
		},
	}

	// The policies come from a text here; a program would follow a file or the store.
	set, err := policyyaml.Decode([]byte(tariff))
	if err != nil {
		fmt.Println(err)
		return
	}
	compiled, err := policy.Compile("shop", set, bindings)
	if err != nil {
		fmt.Println(err)
		return
	}
	l := limiter.MustNew(limiter.Config{Rules: compiled.Rules(), Headers: limiter.XRateLimit})
	server := nethttp.New(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	ask := func(user, address string) {
		r := httptest.NewRequest("GET", "/", nil).WithContext(context.WithValue(context.Background(), signedIn{}, user))
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Printf("%s: %d, limit %q, left %q\n", user, w.Code, w.Header().Get("X-RateLimit-Limit"),
			w.Header().Get("X-RateLimit-Remaining"))
	}

	ask("alice", "192.0.2.1:80")
	plans["alice"] = "pro" // an upgrade keeps what was used
	ask("alice", "192.0.2.1:80")
	ask("carol", "192.0.2.1:80")
	ask("carol", "10.1.2.3:80")
	ask("mallory", "192.0.2.1:80")
	fmt.Println(set[0].Describe())
	// Output:
	// alice: 200, limit "1000", left "999"
	// alice: 200, limit "100000", left "99998"
	// carol: 200, limit "60", left "59"
	// carol: 200, limit "", left ""
	// mallory: 403, limit "", left ""
	// 60 requests an hour for each user, counted in windows that begin with a request; with the plan free 1000 requests an hour; with the plan pro 100000 requests an hour; others are refused; not limited: 1 network; refused at once: 1 key
}
