// Console is the management page of headgate: people with different permissions
// view and edit the policies that the running instances follow. Its commands apply and
// diff keep the policies of a running console in files, backup and restore copy its database, and
// health asks it for its health. See -h, and -h of each command.
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
	_ "time/tzdata" // for calendars, on a machine without time zones

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/api"
	"github.com/headgate/headgate/cmd/headgate-console/internal/app"
	"github.com/headgate/headgate/cmd/headgate-console/internal/apply"
	"github.com/headgate/headgate/cmd/headgate-console/internal/backup"
	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/cmd/headgate-console/internal/server"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/web"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	// A command ends. os.Exit runs no deferred call, so stop is called before.
	if command := commandOf(os.Args[1:]); command != nil {
		code := command(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}

	redis.SetLogger(silent{})
	c, err := config.Parse(os.Args[1:], os.Getenv, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}

	if err == nil {
		err = run(ctx, c, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "console:", err)
		os.Exit(1)
	}
}

// silent drops what the client of Redis has to say, such as a line for each connection that it
// cannot make. The callers of the client get errors, and log when they begin and when they end.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// commandOf returns what the first argument names, or nil for a console that serves.
func commandOf(args []string) func(context.Context, []string, func(string) string, io.Writer, io.Writer) int {
	switch {
	case len(args) == 0:
	case apply.IsCommand(args[0]):
		return apply.Main
	case backup.IsCommand(args[0]):
		return backup.Main
	case args[0] == healthCommand:
		return askHealth
	}
	return nil
}

// run serves until ctx ends. It writes messages for people to w.
func run(ctx context.Context, c config.Config, w io.Writer) (err error) {
	begun := time.Now()
	logger := slog.New(slog.NewTextHandler(w, nil))
	a, err := app.Open(ctx, c, logger)
	if err != nil && ctx.Err() != nil && c.Recover == "" && errors.Is(err, ctx.Err()) {
		logger.Info("ended before it served")
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()

	// The password is the only thing that this run does: a console that serves beside it keeps its
	// port.
	if c.Recover != "" {
		password, err := a.Service.Recover(ctx, c.Recover)
		if err != nil {
			return err
		}
		announce(w, c.Recover, password)
		return nil
	}
	if a.OneTimePassword != "" {
		announce(w, service.FirstUser, a.OneTimePassword)
	}

	// A port that is taken is found before anything is told, and the log names the one that :0 got.
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}

	h, err := handler(a, c, logger)
	if err != nil {
		return errors.Join(err, l.Close())
	}

	logger.Info("serving", "address", l.Addr().String(), "tls", c.TLS != nil, "redis", c.Redis != nil,
		"took", time.Since(begun).Round(time.Millisecond))
	return server.Serve(ctx, l, c.TLS, h, logger)
}

// announce writes a one-time password to w. The console stores only its hash.
func announce(w io.Writer, user, password string) {
	fmt.Fprintf(w, "\n  The administrator %s has the one-time password\n\n      %s\n\n"+
		"  It is not shown again, and has to be changed at the next log-in.\n\n", user, password)
}

// handler answers all requests.
func handler(a *app.App, c config.Config, logger *slog.Logger) (http.Handler, error) {
	pages := web.Options{
		Service: a.Service, Proxies: c.Proxies, Provider: c.Provider, Secure: c.Secure, Logger: logger,
	}
	programs := api.Options{Service: a.Service, Cookie: pages.Cookie(), Proxies: c.Proxies, Logger: logger}

	// Without a Redis these stay nil, and the pages and the API say that the console has none.
	if a.Redis != nil {
		pages.Fleet, pages.Publishing, pages.Takeover = a.Fleet, a.Publisher.Status, a.Publisher.Takeover
		programs.Fleet, programs.Publishing = a.Fleet, a.Publisher.Status
	}

	// Both are made before either error is returned, so that one start names all mistakes.
	w, err := web.New(pages)
	p, err2 := api.New(programs)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}

	mux := http.NewServeMux()
	mux.Handle("/healthz", server.Health(a.Healthy, a.Unpublished))
	mux.Handle("/api/", p)
	mux.Handle("/", w)
	return server.Compress(mux)
}
