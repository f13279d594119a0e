package debug_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/observe/debug"
)

func ExampleHandler() {
	l := limiter.MustNew(limiter.Config{Top: 100, Rules: []limiter.Rule{
		{Name: "visitors", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
	}})
	defer l.Close()

	mux := http.NewServeMux()
	mux.Handle("/", nethttp.New(l)(http.NotFoundHandler()))
	mux.Handle("/debug/limits", debug.Handler(l))

	// A client on another machine:
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "http://192.0.2.1/debug/limits", nil))
	fmt.Println(w.Code)
	// Output: 403
}

// Operators who have logged in may see the page from anywhere.
func ExamplePage() {
	l := limiter.MustNew(limiter.Config{Top: 100})
	defer l.Close()

	isOperator := func(r *http.Request) bool {
		name, password, _ := r.BasicAuth()
		return name == "operator" && password == "secret" // ask your own authentication instead
	}
	page := &debug.Page{
		Limiters: []*limiter.Limiter{l},
		Names:    []string{"front door"},
		Allow:    isOperator,
	}

	r := httptest.NewRequest("GET", "http://192.0.2.1/debug/limits?format=json", nil)
	r.SetBasicAuth("operator", "secret")
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 200 application/json
}
