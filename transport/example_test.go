package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// A client of a model's API takes an estimate of the tokens, and what the answer says in the end.
func ExampleSettleTokens() {
	server := model()
	defer server.Close()

	own := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "requests", Limit: core.MustParseLimit("500/1m")},
		{Name: "tokens", Limit: core.MustParseLimit("100000/1m fixed-window"), CostAtMost: true},
	}})
	client := &http.Client{Transport: transport.MustNew(transport.Config{
		Limiter: own,
		Cost: func(r *http.Request) map[string]int64 {
			if r.ContentLength < 0 {
				return map[string]int64{"tokens": 100_000} // a prompt of any length
			}
			return map[string]int64{"tokens": r.ContentLength/4 + 1000} // the program's max_tokens
		},
		Settle: transport.SettleTokens("tokens"),
	})}

	resp, err := client.Post(server.URL, "application/json", strings.NewReader(`{"input": "Hello"}`))
	if err != nil {
		log.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()

	host := strings.TrimPrefix(server.URL, "http://")
	left, _ := own.Peek(context.Background(), host)
	fmt.Println(left[1].Rule, 100_000-left[1].Decision.Remaining)
	// Output: tokens 29
}

// A library that takes a limiter of requests takes the handle of a key.
func Example_for() {
	own := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "api", Limit: core.MustParseLimit("10/1s")},
	}})

	var perHost interface{ Wait(context.Context) error } = own.For("api.test")
	err := perHost.Wait(context.Background())
	fmt.Println(err)
	// Output: <nil>
}

// model returns a server that answers as a model does.
func model() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"usage": {"input_tokens": 19, "output_tokens": 10}}`)
	}))
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
