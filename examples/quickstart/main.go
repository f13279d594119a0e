// Quickstart is a small service behind a limiter, for a first look and for
// trying out limits:
//
//	go -C examples/quickstart run .
//	curl -i http://127.0.0.1:8080/
//
// The sixth curl within some seconds gets a 429. Flags choose the store, the rules, the key
// and the action over the limit; -h lists them. Several -rule flags are decided together. GET / and
// GET /hold?for=200ms are limited, GET /healthz never is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

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

	if err := listen(ctx, s, out); err != nil {
		fmt.Fprintln(errs, "quickstart:", oneLine(err))
		return 1
	}
	return 0
}

// listen opens the store and the address, and serves until ctx ends.
func listen(ctx context.Context, s *settings, out io.Writer) error {
	store, closeStore, err := s.open(s.timeout)
	if err != nil {
		return err
	}
	defer closeStore()

	l, err := limiter.New(limiter.Config{Store: store, Rules: s.rules})
	if err != nil {
		return err
	}

	// The address is opened last: no client connects to a service that does not start.
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	defer listener.Close()

	fmt.Fprintf(out, "listening on http://%s\n", listener.Addr())
	return serve(ctx, listener, l, newServer(l))
}

// serve answers requests until ctx ends. Then it lets requests in flight finish, also
// those that wait for a turn within the shutdownTimeout.
func serve(ctx context.Context, listener net.Listener, l *limiter.Limiter, server *http.Server) error {
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}

	// The context has ended, so the end has a time-out of its own. Requests that wait for their
	// turn get it while the server waits for them.
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- l.Shutdown(ctx) }()
	err := errors.Join(server.Shutdown(ctx), <-drained)

	_ = listener.Close() // a server that was not yet serving has not closed it
	if served := <-ended; served != http.ErrServerClosed {
		err = errors.Join(err, served)
	}
	return err
}

// shutdownTimeout is how long requests may go on after ctx has ended. It is more than
// the five seconds for which net/http waits for the first request of a new
// connection.
const shutdownTimeout = 10 * time.Second

// oneLine puts the parts of a joined error into one line.
func oneLine(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}
