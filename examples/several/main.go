// Several decides two limits together: one for bursts and one for the day, by
// address. Every answer describes both, and a request that one of them refuses
// costs nothing under the other:
//
//	go run ./examples/several
//	curl -i http://127.0.0.1:8080/
//
// The third curl within some seconds gets a 429, and its RateLimit header still
// says that 3 of 5 are left of the day.
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

func main() { serve.Main("several", &program{}) }

type program struct{ burst, daily core.Limit }

func (p *program) Flags(f *flag.FlagSet) {
	f.TextVar(&p.burst, "burst", core.Limit{Quota: 2, Period: 10 * time.Second}, "limit of a short span")
	f.TextVar(&p.daily, "daily", core.MustParseLimit("5/1d fixed-window aligned"),
		"limit of a day")
}

func (p *program) Open(store core.Store) (*serve.App, error) {
	l, err := limiter.New(limiter.Config{
		Store: store,
		Rules: []limiter.Rule{
			{Name: "burst", Key: keyfuncs.RemoteIP, Limit: p.burst},
			{Name: "daily", Key: keyfuncs.RemoteIP, Limit: p.daily},
		},
		OnError: serve.LogError,
	})
	if err != nil {
		return nil, err
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") })
	return &serve.App{Limiter: l, Server: serve.HTTP(nethttp.New(l)(hello))}, nil
}
