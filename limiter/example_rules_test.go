package limiter_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/store/memstore"
)

// All rules are charged, or none is.
func ExampleNew() {
	l, err := limiter.New(limiter.Config{
		Store: memstore.MustNew(memstore.Options{}),
		Rules: []limiter.Rule{
			{Name: "burst", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("10/1s")},
			{Name: "daily", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("5000/24h fixed-window")},
		},
	})
	fmt.Println(l != nil, err)
	// Output: true <nil>
}

// The error of New names every mistake by rule.
func ExampleNew_mistakes() {
	_, err := limiter.New(limiter.Config{
		Store: memstore.MustNew(memstore.Options{}),
		Rules: []limiter.Rule{
			{Name: "Burst", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("10/1s")},
			{Name: "daily", Key: keyfuncs.RemoteIP, Limit: core.Limit{Quota: 5000}},
		},
	})
	fmt.Println(err)
	// Output:
	// rule 0 "Burst": the name is not 1 to 64 of a-z, 0-9, _, . and -, a letter first
	// rule 1 "daily": period 0s is below 1ms
}

// Each address may send 100 requests a minute, and 5000 in a day.
func Example() {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})

	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "rate", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m fixed-window")},
		{Name: "day", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("5000/24h")},
	}})
	defer l.Close()
	handler := nethttp.New(l)(mux)

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 99
	// 200 98
	// 200 97
}
