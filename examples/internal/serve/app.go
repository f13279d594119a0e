package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/headgate/headgate/limiter"
)

// App is the server that a program runs.
type App struct {
	Limiter *limiter.Limiter
	Server  Server

	// Reload, unless nil, is called when the process gets a SIGHUP.
	Reload func() error
}

// Server is any framework's server.
type Server interface {
	// Serve answers until Shutdown is called or the listener is closed.
	Serve(net.Listener) error
	// Shutdown lets requests finish until ctx ends.
	Shutdown(ctx context.Context) error
}

// HTTP returns a server of net/http.
func HTTP(h http.Handler) Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
}

// fiberApp is what a *fiber.App has, so that programs without Fiber need not
// know of it.
type fiberApp interface {
	Listener(net.Listener) error
	ShutdownWithContext(context.Context) error
}

// Fiber returns the server of a *fiber.App.
func Fiber(app fiberApp) Server { return fiberServer{app} }

type fiberServer struct{ app fiberApp }

func (s fiberServer) Serve(l net.Listener) error         { return s.app.Listener(l) }
func (s fiberServer) Shutdown(ctx context.Context) error { return s.app.ShutdownWithContext(ctx) }

// patience is how long requests may go on when the program is to end. It is more
// than the five seconds for which net/http waits for the first request of a new
// connection.
const patience = 10 * time.Second

// Serve listens on addr, prints the address, and serves until ctx ends. Then it
// refuses waiting requests, and lets requests in flight finish.
func (c Call) Serve(ctx context.Context, addr string, a *App) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	hangups := make(chan os.Signal, 1)
	if a.Reload != nil {
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Server.Serve(listener) }()
	fmt.Fprintf(c.Out, "listening on http://%s\n", listener.Addr())
	for {
		select {
		case err := <-ended:
			return err
		case <-hangups:
			c.reload(a)
		case <-ctx.Done():
			return a.stop(listener, ended)
		}
	}
}

func (c Call) reload(a *App) {
	if err := a.Reload(); err != nil {
		fmt.Fprintf(c.Err, "%s: not reloaded: %v\n", c.Name, OneLine(err))
		return
	}
	fmt.Fprintln(c.Out, "reloaded")
}

func (a *App) stop(listener net.Listener, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := errors.Join(a.Limiter.Close(), a.Server.Shutdown(ctx))
	// A server that was not yet serving has not closed it.
	_ = listener.Close()
	if served := <-ended; served != http.ErrServerClosed {
		err = errors.Join(err, served)
	}
	return err
}
