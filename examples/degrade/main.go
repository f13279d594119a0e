// Degrade answers every request, but computes new answers for each address only
// within a limit; over the limit it serves a cached answer:
//
//	go run ./examples/degrade
//	curl -i http://127.0.0.1:8080/quote
//	curl -i http://127.0.0.1:8080/page
//
// Three times in a minute the quote is new. Then WithDegraded lets another
// handler answer: the last quote again, marked "X-Cache: hit". The page is one
// handler that asks limiter.Degraded and leaves the expensive part out.
package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func main() { serve.Main("degrade", &program{}) }

type program struct{ limit core.Limit }

func (p *program) Flags(f *flag.FlagSet) {
	f.TextVar(&p.limit, "limit", core.MustParseLimit("3/1m fixed-window"), "fresh answers for an address")
}

func (p *program) Open(store core.Store) (*serve.App, error) {
	l, err := limiter.New(limiter.Config{
		Store:   store,
		Rules:   []limiter.Rule{{Name: "fresh", Key: keyfuncs.RemoteIP, Limit: p.limit, OnLimit: limiter.Degrade}},
		OnError: serve.LogError,
	})
	if err != nil {
		return nil, err
	}
	q := &quotes{}
	mux := http.NewServeMux()
	mux.Handle("GET /quote", nethttp.New(l, nethttp.WithDegraded(http.HandlerFunc(q.cached)))(http.HandlerFunc(q.fresh)))
	mux.Handle("GET /page", nethttp.New(l)(http.HandlerFunc(page)))
	return &serve.App{Limiter: l, Server: serve.HTTP(mux)}, nil
}

// quotes computes quotes and keeps the latest.
type quotes struct {
	mu     sync.Mutex
	latest int
}

func (q *quotes) fresh(w http.ResponseWriter, _ *http.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.latest++ // what would be expensive
	fmt.Fprintf(w, "quote %d\n", q.latest)
}

func (q *quotes) cached(w http.ResponseWriter, r *http.Request) {
	q.mu.Lock()
	latest := q.latest
	q.mu.Unlock()
	if latest == 0 { // nothing is cached yet
		q.fresh(w, r)
		return
	}
	w.Header().Set("X-Cache", "hit")
	fmt.Fprintf(w, "quote %d\n", latest)
}

func page(w http.ResponseWriter, r *http.Request) {
	if limiter.Degraded(r.Context()) {
		io.WriteString(w, "the page\n")
		return
	}
	io.WriteString(w, "the page, and what you may also like\n")
}
