package limiter_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

type claimsKey struct{} // the authentication puts the claims under this key

// claims are what a checked token says about its bearer.
type claims struct{ user, limit string }

// authenticated stands in for an authentication: only a gateway that knows the secret may
// say who the caller is.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Gateway-Secret") != "s3cret" {
			next.ServeHTTP(w, r)
			return
		}
		c := claims{r.Header.Get("X-User"), r.Header.Get("X-User-Limit")}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), claimsKey{}, c)))
	})
}

// A limit comes with the request. It is read from what the authentication has put into the
// context, never from a header: any client can send "X-User-Limit: 1000000/1s".
func ExampleRule_override() {
	user := keyfuncs.UserID(func(ctx context.Context) (string, bool) {
		c, ok := ctx.Value(claimsKey{}).(claims)
		return c.user, ok
	})
	own := func(ctx context.Context, _ string) (core.Limit, bool, error) {
		c, ok := ctx.Value(claimsKey{}).(claims)
		if !ok || c.limit == "" {
			return core.Limit{}, false, nil // the Limit of the rule
		}
		limit, err := core.ParseLimit(c.limit)
		return limit, true, err
	}

	l := limiter.MustNew(limiter.Config{Headers: limiter.XRateLimit, Rules: []limiter.Rule{
		{Name: "api", Key: user, Limit: core.MustParseLimit("60/1h fixed-window"), Override: own},
	}})
	hello := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	server := authenticated(nethttp.New(l)(hello))

	ask := func(secret, user, limit string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Gateway-Secret", secret)
		r.Header.Set("X-User", user)
		r.Header.Set("X-User-Limit", limit)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Println(user, w.Code, w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"))
	}

	ask("s3cret", "alice", "1000/1h fixed-window")
	ask("s3cret", "alice", "5000/1h fixed-window") // an upgrade keeps what was used
	ask("s3cret", "bob", "")
	// The secret is not known to eve, so the limit of her header is not read.
	ask("guessed", "eve", "1000000/1s fixed-window")
	// Output:
	// alice 200 1000 999
	// alice 200 5000 4998
	// bob 200 60 59
	// eve 200 60 59
}

// The monitoring in one network is never limited by the rule, and a hostile network is
// refused before anything is counted.
func ExampleRule_access() {
	access := keyfuncs.MustAccess(keyfuncs.Lists{
		Allow: keyfuncs.Callers{Networks: []string{"10.1.0.0/16"}},
		Deny:  keyfuncs.Callers{Networks: []string{"10.0.0.0/8", "2001:db8::/32"}},
	})
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "ip", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("1/1h"), Access: access},
	}})

	server := nethttp.New(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	for _, address := range []string{"192.0.2.1:80", "192.0.2.1:80", "10.1.2.3:80", "10.1.2.3:80", "10.6.6.6:80",
		"[2001:db8::1]:80"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Printf("%s: %d, Retry-After %q\n", address, w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// 192.0.2.1:80: 200, Retry-After ""
	// 192.0.2.1:80: 429, Retry-After "3600"
	// 10.1.2.3:80: 200, Retry-After ""
	// 10.1.2.3:80: 200, Retry-After ""
	// 10.6.6.6:80: 403, Retry-After ""
	// [2001:db8::1]:80: 403, Retry-After ""
}
