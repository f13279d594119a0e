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
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "burst", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("2/10s")},
		{Name: "daily", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("5/1d fixed-window aligned")},
	}})
	return nethttp.New(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "hello\n")
	}))
}
