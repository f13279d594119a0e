// Customers gives each customer the limit in limits.json, and other clients the default:
//
//	cd examples/customers && go run .
//	curl -i -H 'X-Token: alice-token' http://127.0.0.1:8080/
//
// A SIGHUP has the file read again. Used units stay used, and a mistake changes nothing.
package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func main() {
	l := limiter.MustNew(limiter.Config{})
	if err := load(l, "limits.json"); err != nil {
		log.Fatal(err)
	}

	// A file with a mistake leaves the limits before it in force.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			log.Print("limits.json was read again, error: ", load(l, "limits.json"))
		}
	}()

	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") })
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nethttp.New(l)(hello)))
}

// load puts the limits of the file in force.
func load(l *limiter.Limiter, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}

	var limits map[string]core.Limit
	if err := json.Unmarshal(text, &limits); err != nil {
		return err
	}

	// A customer whom the file does not name has the default limit.
	own := func(_ context.Context, name string) (core.Limit, bool, error) {
		limit, ok := limits[name]
		return limit, ok && limit.Validate() == nil, nil
	}

	return l.SetRules([]limiter.Rule{{Key: nethttp.Key(customer), Limit: limits["default"], Override: own}})
}

// customer stands in for authentication. Clients without a token share one count.
func customer(r *http.Request) (string, bool) {
	names := map[string]string{"alice-token": "alice", "bob-token": "bob", "carol-token": "carol"}
	return names[r.Header.Get("X-Token")], true
}
