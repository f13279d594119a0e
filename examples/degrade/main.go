// Degrade answers every request, but computes new answers for each address only
// within a limit; over the limit it serves a cached answer:
//
//	go run ./examples/degrade
//	curl -i http://127.0.0.1:8080/quote
//	curl -i http://127.0.0.1:8080/page
//
// Three times in a minute the quote is new. Then Config.Degraded lets another
// handler answer: the last quote again, marked "X-Cache: hit". The page is one
// handler that asks limiter.Degraded and leaves the expensive part out.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"sync/atomic"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler())) }

func handler() http.Handler {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{{
		Key:     keyfuncs.RemoteIP,
		Limit:   core.MustParseLimit("3/1m fixed-window"),
		OnLimit: limiter.Degrade,
	}}})

	// Over the limit the service answers with what it has found last.
	var latest atomic.Int64
	fresh := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "quote %d\n", latest.Add(1)) // the expensive part
	})
	cached := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if latest.Load() == 0 { // nothing is cached yet
			fresh(w, r)
			return
		}
		w.Header().Set("X-Cache", "hit")
		fmt.Fprintf(w, "quote %d\n", latest.Load())
	})

	mux := http.NewServeMux()
	mux.Handle("GET /quote", nethttp.New(l, nethttp.Config{Degraded: cached})(fresh))
	mux.Handle("GET /page", nethttp.New(l)(http.HandlerFunc(page)))
	return mux
}

func page(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "the page\n")
	if !limiter.Degraded(r.Context()) {
		io.WriteString(w, "and what you may also like\n")
	}
}
