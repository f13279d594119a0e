package nethttp_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/store/memstore"
)

// greeting answers every request.
var greeting = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") })

// ask calls h and prints the status and the number of remaining requests.
func ask(h http.Handler, header ...string) {
	r := httptest.NewRequest("GET", "/", nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Printf("%d %q\n", w.Code, w.Header().Get("X-RateLimit-Remaining"))
}

// The middleware wraps any http.Handler, including routers built on net/http.
func ExampleNew() {
	limit := nethttp.New(limiter.PerIP("2/1h fixed-window"))
	h := limit(greeting)
	for range 3 {
		ask(h)
	}
	// Output:
	// 200 "1"
	// 200 "0"
	// 429 "0"
}

// Clients see the most exhausted rule of two limiters around one another.
func ExampleNew_nested() {
	service := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "service", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1h fixed-window")},
	}})
	search := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "search", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("5/1h fixed-window")},
	}})
	mux := http.NewServeMux()
	mux.Handle("/search", nethttp.New(search)(greeting))
	h := nethttp.New(service)(mux)

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/search", nil))
	fmt.Println(w.Header().Get("X-RateLimit-Remaining"), "of", w.Header().Get("X-RateLimit-Limit"))
	fmt.Println(w.Header().Get("RateLimit"))
	// Output:
	// 4 of 5
	// "search";r=4;t=3600, "service";r=99;t=3600
}

// The key may be a function of the *http.Request.
func ExampleKey() {
	tenant := nethttp.Key(func(r *http.Request) (string, bool) {
		return r.Header.Get("X-Tenant"), true // set by the proxy in front, always
	})

	limit := nethttp.New(limiter.MustNew(limiter.Config{
		Store: memstore.MustNew(memstore.Options{}),
		Rules: []limiter.Rule{{Name: "tenant", Key: tenant, Limit: core.MustParseLimit("2/1h fixed-window")}},
	}))
	h := limit(greeting)

	ask(h, "X-Tenant", "a")
	ask(h, "X-Tenant", "a")
	ask(h, "X-Tenant", "b")
	// Output:
	// 200 "1"
	// 200 "0"
	// 200 "1"
}

// Health checks pass uncounted.
func ExampleConfig() {
	l := limiter.MustNew(limiter.Config{
		Store: memstore.MustNew(memstore.Options{}),
		Rules: []limiter.Rule{{Name: "ip", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("1/1h fixed-window")}},
	})
	health := func(r *http.Request) bool { return r.URL.Path == "/" }

	h := nethttp.New(l, nethttp.Config{Skip: health})(greeting)
	for range 2 {
		ask(h)
	}
	// Output:
	// 200 ""
	// 200 ""
}

// A server admits 100 requests a minute from each address.
func Example() {
	limit := nethttp.New(limiter.PerIP("100/1m"))
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir("/srv/www")))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", limit(mux)))
}
