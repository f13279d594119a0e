// Proxy counts callers behind a reverse proxy by their own address, and ignores
// addresses that callers forge in X-Forwarded-For. Every client that connects from
// 127.0.0.1, such as curl, stands in for the proxy here:
//
//	go run ./examples/proxy
//	curl -i -H 'X-Forwarded-For: 203.0.113.7' http://127.0.0.1:8080/
//	curl -i -H 'X-Forwarded-For: 198.51.100.1, 203.0.113.7' http://127.0.0.1:8080/
//	curl -i --interface 127.0.0.2 -H 'X-Forwarded-For: 198.51.100.1' http://127.0.0.1:8080/
//
// The second request shows a forged header after a proxy, which appends the
// address that it sees. Both requests count for 203.0.113.7, whose
// X-RateLimit-Remaining goes down. The third does not come through the proxy, so
// its header is ignored.
package main

import (
	"flag"
	"io"
	"net/http"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func main() { serve.Main("proxy", &program{}) }

type program struct {
	limit core.Limit
	trust string
}

func (p *program) Flags(f *flag.FlagSet) {
	f.TextVar(&p.limit, "limit", core.MustParseLimit("5/1m fixed-window"), "limit of a caller")
	f.StringVar(&p.trust, "trust", "127.0.0.1,::1", "addresses and CIDR prefixes of the proxies, with commas between")
}

func (p *program) Open(store core.Store) (*serve.App, error) {
	caller, err := keyfuncs.ForwardedIP(keyfuncs.Proxies{Trusted: strings.Split(p.trust, ",")})
	if err != nil {
		return nil, err
	}
	l, err := limiter.New(limiter.Config{
		Store:   store,
		Rules:   []limiter.Rule{{Name: "caller", Key: caller, Limit: p.limit}},
		OnError: serve.LogError,
	})
	if err != nil {
		return nil, err
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") })
	return &serve.App{Limiter: l, Server: serve.HTTP(nethttp.New(l)(hello))}, nil
}
