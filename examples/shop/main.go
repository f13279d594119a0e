// Shop is a service whose limits come from the management page, as the application "shop":
//
//	go -C cmd/headgate-console run . -redis redis://127.0.0.1:6379
//	go run ./examples/shop
package main

import (
	"cmp"
	"context"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/managed"
	"github.com/headgate/headgate/store/redisstore"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "`address` of the Redis that the page publishes to")
	timeout := flag.Duration("timeout", 0, "the longest `time` of a decision in Redis; 0 is the default")
	listen := flag.String("listen", "127.0.0.1:8081", "`address` to serve on")
	name := flag.String("instance", "", "the `name` of this instance on the page; the default is its address")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	listener, err := net.Listen("tcp", *listen)
	if err == nil {
		follow := policy.Options{
			Instance: cmp.Or(*name, "shop@"+listener.Addr().String()), OnMissing: policy.OnMissingWait,
		}
		err = serve(ctx, *addr, follow, redisstore.Options{Timeout: *timeout}, listener)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve answers requests until ctx ends.
func serve(
	ctx context.Context, addr string, follow policy.Options, store redisstore.Options, listener net.Listener,
) error {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer client.Close()

	// The limits follow what the page publishes, until Close.
	limits, err := managed.Open(ctx, client, managed.Options{
		App: "shop", Follow: follow, Store: store, Limiter: limiter.Config{Top: 20},
	})
	if err != nil {
		return err
	}
	defer limits.Close()

	shop := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the shop\n") }
	server := &http.Server{Handler: nethttp.New(limits.Limiter)(http.HandlerFunc(shop))}

	// Serve returns when the shutdown begins. The requests under way end before the limits do.
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() { stopped <- server.Shutdown(context.Background()) })
	log.Printf("serving address=%s", listener.Addr())
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return <-stopped
}
