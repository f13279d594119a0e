package transport_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/transport"
)

// api returns a server that allows two requests a minute.
func api() *httptest.Server {
	limit := nethttp.New(limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("2/1m fixed-window")},
	}}))
	return httptest.NewServer(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
}

// The server has said that nothing is left, so the third request is not sent.
func Example() {
	server := api()
	defer server.Close()

	client := &http.Client{
		Transport: transport.MustNew(transport.Config{MaxWait: 5 * time.Second}),
	}
	for range 3 {
		resp, err := client.Get(server.URL)
		var limited *transport.LimitedError
		if errors.As(err, &limited) {
			fmt.Println("not sent; the server would refuse it for", limited.RetryAfter.Round(time.Minute))
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
	}

	// Output:
	// 200 OK
	// 200 OK
	// not sent; the server would refuse it for 1m0s
}

// Ten requests a second, evenly spaced, whatever the server says.
func ExampleConfig_limiter() {
	server := api()
	defer server.Close()

	own := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "api", Limit: core.MustParseLimit("10/1s burst=1")},
		{Name: "parallel", Limit: core.MustParseLimit("4 concurrent ttl=1m")},
	}})
	client := &http.Client{Transport: transport.MustNew(transport.Config{Limiter: own})}

	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}

// GitHub counts by the credential, and apart for search and GraphQL.
func ExampleConfig_key() {
	c := transport.Config{
		Key: func(r *http.Request) string {
			api := "core"
			switch {
			case strings.HasPrefix(r.URL.Path, "/search/"):
				api = "search"
			case r.URL.Path == "/graphql":
				api = "graphql"
			}
			return r.URL.Host + " " + api
		},
		Pace:    transport.Spread,
		MaxWait: time.Hour,
		Retries: 3,
	}
	t := transport.MustNew(c)

	r, _ := http.NewRequest(http.MethodGet, "https://api.github.com/search/code?q=headgate", nil)
	fmt.Println(t != nil, c.Key(r))
	// Output: true api.github.com search
}

// requests counts what became of requests, as metrics would.
type requests map[transport.Outcome]int

func (n requests) Observe(_ context.Context, e transport.Event) { n[e.Outcome]++ }

func ExampleObserver() {
	server := api()
	defer server.Close()

	seen := requests{} // a program with several goroutines needs a mutex
	client := &http.Client{Transport: transport.MustNew(transport.Config{Observer: seen, MaxWait: time.Second})}
	for range 3 {
		if resp, err := client.Get(server.URL); err == nil {
			resp.Body.Close()
		}
	}
	fmt.Println(seen[transport.Answered], seen[transport.Limited])
	// Output: 2 1
}

// A request that would have to wait for too long is not sent.
func ExampleTransport() {
	server := api()
	defer server.Close()
	url := server.URL

	paced := transport.MustNew(transport.Config{MaxWait: 5 * time.Second})
	client := &http.Client{Transport: paced}
	resp, err := client.Get(url)
	var limited *transport.LimitedError
	if errors.As(err, &limited) {
		fmt.Println("not sent; there is a turn in", limited.RetryAfter)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}
