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
	"io"
	"log"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler())) }

func handler() http.Handler {
	caller := keyfuncs.MustForwardedIP(keyfuncs.Proxies{Trusted: []string{"127.0.0.1", "::1"}})
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Key: caller, Limit: core.MustParseLimit("5/1m fixed-window")},
	}})
	return nethttp.New(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "hello\n")
	}))
}
