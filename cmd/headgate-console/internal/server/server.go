// Package server serves HTTP with bounds on times and sizes, and shuts down without breaking off
// requests. [Serve] serves until its context ends.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// Bounds of a request and its answer.
const (
	headerTime   = 5 * time.Second
	readTime     = 30 * time.Second
	writeTime    = 3 * time.Minute // an import may take two
	idleTime     = 2 * time.Minute
	headerBytes  = 32 << 10
	bodyBytes    = service.MaxOverridesFile // the most of all routes, whose own are smaller
	shutdownTime = 15 * time.Second
)

// Serve answers the requests on l, with TLS unless c is nil, until ctx ends. Then
// it accepts no more requests and waits up to 15 seconds for running ones. It
// returns nil if they have finished. It closes l.
func Serve(ctx context.Context, l net.Listener, c *tls.Config, h http.Handler, logger *slog.Logger) error {
	s := &http.Server{
		Handler:           http.MaxBytesHandler(h, bodyBytes),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		TLSConfig:         c,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}

	ended := make(chan error, 1)
	go func() {
		if c != nil {
			ended <- s.ServeTLS(l, "", "")
			return
		}
		ended <- s.Serve(l)
	}()

	// Without ctx it ends only by a failure, such as of the listener.
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}

	// ctx has ended, so the time for the requests in progress is counted without it.
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()

	err := s.Shutdown(deadline)
	if err != nil {
		err = errors.Join(err, s.Close())
	}

	// The goroutine has ended when Serve returns.
	<-ended
	return err
}
