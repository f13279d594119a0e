package nethttp_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func TestRoute(t *testing.T) {
	var routes []string
	spy := rule("9/1m")
	spy.Key = func(r core.Request) (string, bool) {
		routes = append(routes, r.Route())
		return "", true
	}

	limit := nethttp.New(newLimiter(t, limiter.Config{Rules: []limiter.Rule{spy}}))

	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", limit(http.HandlerFunc(hello)))
	// A route is known inside a mux, and not yet around it.
	get(mux, "/users/7")
	get(limit(mux), "/users/7")

	if want := []string{"GET /users/{id}", ""}; !slices.Equal(routes, want) {
		t.Errorf("got %q, want %q", routes, want)
	}
}
