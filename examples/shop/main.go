// Shop is a service whose limits come from the console. Several instances of it,
// with Gin or with net/http, share one Redis, and so do their counts:
//
//	go run ./examples/shop -framework gin -listen 127.0.0.1:8081
//	go run ./examples/shop -framework nethttp -listen 127.0.0.1:8082
//
// A change in the console for the application "shop" is in force in all instances
// a moment later, and each prints its version. A service of your own needs the
// file limits.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, w io.Writer) (err error) {
	s, err := parse(args, w)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	logger := slog.New(slog.NewTextHandler(w, nil))
	name := s.framework + "@" + listener.Addr().String()
	l, err := follow(ctx, s, name, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	logger.Info("serving", "instance", name, "address", listener.Addr().String())
	return serve(ctx, listener, authenticate(frameworks()[s.framework](l.Limiter)))
}

// settings are the flags.
type settings struct {
	listen, framework, lastGood string
	redis                       *redis.Options
	timeout                     time.Duration
}

func parse(args []string, w io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("shop", flag.ContinueOnError)
	f.SetOutput(w)
	url := f.String("redis", "redis://127.0.0.1:6379/0", "`URL` of the Redis that the console publishes to")
	f.StringVar(&s.listen, "listen", "127.0.0.1:8081", "`address` to serve on")
	f.StringVar(&s.framework, "framework", "gin", "gin or nethttp")
	f.StringVar(&s.lastGood, "last-good", "", "`file` that keeps the policies for a start without Redis")
	f.DurationVar(&s.timeout, "timeout", 0, "the longest `time` that Redis may take for a decision; 0 is the usual one")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	var errs []error
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("the argument %q is not a flag", f.Arg(0)))
	}
	if frameworks()[s.framework] == nil {
		errs = append(errs, fmt.Errorf("-framework: %q is neither gin nor nethttp", s.framework))
	}
	var err error
	if s.redis, err = redis.ParseURL(*url); err != nil { // whose text may show the password
		return s, errors.Join(append(errs, errors.New("-redis: it is not of the form redis://user:password@host:port/0"))...)
	}
	s.redis.ContextTimeoutEnabled = true
	return s, errors.Join(errs...)
}

// serve answers until ctx ends, and then lets requests finish.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := server.Shutdown(ctx)
	<-ended
	return err
}
