// Quickstart is a small service behind a limiter, for a first look and for
// trying out limits:
//
//	go run ./examples/quickstart
//	curl -i http://127.0.0.1:8080/
//
// Flags choose the framework, the store, the rules, the key and the action over
// the limit. Several -rule flags are decided together. Routes: GET / and
// GET /hold?for=200ms are limited, GET /healthz never is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/limiter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run serves until ctx ends. It returns the exit status: 2 for a configuration
// that cannot work, with a line for each mistake, and 1 for any other failure.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	s, faults := parse(args)
	if len(faults) == 1 && errors.Is(faults[0], flag.ErrHelp) {
		fmt.Fprintln(out, faults[0])
		return 0
	}
	if len(faults) > 0 {
		for _, f := range faults {
			fmt.Fprintln(errs, "quickstart:", f)
		}
		return 2
	}
	if err := listen(ctx, s, out, errs); err != nil {
		fmt.Fprintln(errs, "quickstart:", err)
		return 1
	}
	return 0
}

// listen serves until ctx ends, and then lets requests finish.
func listen(ctx context.Context, s *settings, out, errs io.Writer) error {
	store, closeStore, err := s.open(s.timeout)
	if err != nil {
		return err
	}
	defer closeStore()
	l, err := limiter.New(limiter.Config{Store: store, Rules: s.rules, OnError: serve.LogError})
	if err != nil {
		return err
	}
	app := &serve.App{Limiter: l, Server: s.framework(l)}
	return serve.Call{Name: "quickstart", Out: out, Err: errs}.Serve(ctx, s.addr, app)
}
