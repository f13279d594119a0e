// Smooth makes requests over the limit wait for their turn instead of refusing
// them, so that a burst comes through evenly spaced:
//
//	go run ./examples/smooth
//	seq 10 | xargs -P 10 -I{} curl -s http://127.0.0.1:8080/
//
// The ten lines show instants that are 100 ms apart. Of 30 requests at once the
// last get a 429 at once, because they would wait for more than two seconds. On an
// interrupt the program takes no more requests, and ends when those that wait have had
// their turn.
package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	listener, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(ctx, listener); err != nil {
		log.Fatal(err)
	}
}

// serve answers requests until ctx ends.
func serve(ctx context.Context, listener net.Listener) error {
	limit := core.MustParseLimit("10/1s burst=1") // a burst of 1 spaces all requests evenly
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Key: keyfuncs.Global, Limit: limit, OnLimit: limiter.Wait(2 * time.Second)},
	}})
	server := &http.Server{Handler: nethttp.New(l)(http.HandlerFunc(now))}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() { stopped <- errors.Join(server.Shutdown(context.Background()), l.Close()) })
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return <-stopped
}

func now(w http.ResponseWriter, _ *http.Request) {
	io.WriteString(w, time.Now().Format("15:04:05.000\n"))
}
