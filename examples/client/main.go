// Client fetches pages of an API that has GitHub's limits, all at once. The API never has to
// refuse it. Start such a server first:
//
//	go run ./examples/tiers
//	go run ./examples/client -wait 1m http://127.0.0.1:8080/
//
// It prints 60 lines, which is what an address may ask for in an hour, and for the other pages
// how long the wait would be. With -wait 1h it waits.
package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/transport"
)

func main() {
	n := flag.Int("n", 100, "how many pages to fetch")
	wait := flag.Duration("wait", time.Minute, "how long a request waits at most")
	flag.Parse()
	fetch(&http.Client{Transport: pace(http.DefaultTransport, *wait)}, flag.Arg(0), *n, os.Stdout)
}

// pace returns a transport for an API that counts searches apart, as GitHub does.
func pace(base http.RoundTripper, wait time.Duration) http.RoundTripper {
	key := func(r *http.Request) string {
		if strings.HasPrefix(r.URL.Path, "/search/") {
			return r.URL.Host + " search"
		}
		return r.URL.Host
	}
	return transport.MustNew(transport.Config{Base: base, Key: key, MaxWait: wait, Retries: 3})
}

// fetch gets n pages at the same time and writes a line for each.
func fetch(client *http.Client, url string, n int, w io.Writer) {
	var mu sync.Mutex
	var all sync.WaitGroup

	for page := range n {
		all.Go(func() {
			resp, err := client.Get(fmt.Sprintf("%s?page=%d", url, page))
			// Answers come in any order. Each is a line.
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Fprintln(w, time.Now().Format(time.TimeOnly), err)
				return
			}
			defer resp.Body.Close()
			fmt.Fprintln(w, time.Now().Format(time.TimeOnly), page, resp.Status)
		})
	}

	all.Wait()
}
