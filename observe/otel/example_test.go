package otel_test

import (
	"log"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/observe/otel"
)

// A program that has set the global meter provider.
func Example() {
	config := limiter.Config{Rules: []limiter.Rule{
		{Name: "visitors", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
	}}
	otel.MustNew(otel.Options{}).Install(&config)
	l := limiter.MustNew(config)
	defer l.Close()

	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nethttp.New(l)(http.DefaultServeMux)))
}
