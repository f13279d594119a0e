// Smooth makes requests over the limit wait for their turn instead of refusing
// them, so that a burst comes through evenly spaced:
//
//	go run ./examples/smooth
//	seq 10 | xargs -P 10 -I{} curl -s http://127.0.0.1:8080/
//
// The ten lines show instants that are 100 ms apart. A request that would have to
// wait for more than two seconds gets a 429 at once; with 30 instead of 10
// requests, the last ones do.
package main

import (
	"flag"
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func main() { serve.Main("smooth", &program{}) }

type program struct {
	limit core.Limit
	most  time.Duration
}

func (p *program) Flags(f *flag.FlagSet) {
	// A burst of 1 spaces requests evenly: no two pass together.
	f.TextVar(&p.limit, "limit", core.MustParseLimit("10/1s burst=1"), "limit of all")
	f.DurationVar(&p.most, "wait", 2*time.Second, "the longest wait")
}

func (p *program) Open(store core.Store) (*serve.App, error) {
	l, err := limiter.New(limiter.Config{
		Store:   store,
		Rules:   []limiter.Rule{{Name: "smooth", Key: keyfuncs.Global, Limit: p.limit, OnLimit: limiter.Wait(p.most)}},
		OnError: serve.LogError,
	})
	if err != nil {
		return nil, err
	}
	now := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, time.Now().Format("15:04:05.000\n"))
	})
	return &serve.App{Limiter: l, Server: serve.HTTP(nethttp.New(l)(now))}, nil
}
