package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/quietlog"
)

// HTTPOptions bound what the clients of an HTTP port can take. A bound of 0 is none.
type HTTPOptions struct {
	// TLS is nil for plain HTTP. HTTP/2 is spoken in either case.
	TLS *tls.Config

	// HeaderBytes is the size of a request's header, and BodyBytes that of its body. A
	// handler that reads more gets an *http.MaxBytesError. BodyBytes is carried out by Bound.
	HeaderBytes int
	BodyBytes   int64

	// HeaderTimeout is how long a request's header may take. PieceTimeout is how long the
	// client may take to send the next piece of a body, or to accept the next piece of an
	// answer; it is carried out by Bound. IdleTimeout is how long a connection may have no request.
	HeaderTimeout, PieceTimeout, IdleTimeout time.Duration

	// Log receives what clients cause, such as failed handshakes of TLS.
	Log *quietlog.Log
}

// HTTP is a Service. Its Shutdown also waits for connections that handlers have taken
// over, such as WebSockets. It breaks requests off by their context.
type HTTP struct {
	server  *http.Server
	options HTTPOptions
	ctx     context.Context // of all requests
	cancel  context.CancelCauseFunc

	mu      sync.Mutex
	running int           // handlers. Guarded by mu.
	none    chan struct{} // closed when none runs; nil while no Shutdown waits. Guarded by mu.
}

// errEnd is the cause of the end of requests that are broken off.
var errEnd = errors.New("the gateway ends")

// closeTime is how long the handlers of requests that are broken off may take to return.
const closeTime = time.Second

// NewHTTP returns a service that answers with h, whose requests pass Bound.
func NewHTTP(h http.Handler, o HTTPOptions) *HTTP {
	s := &HTTP{options: o}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())

	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s.server = &http.Server{
		Handler:           s.count(h),
		Protocols:         protocols,
		ReadHeaderTimeout: o.HeaderTimeout,
		IdleTimeout:       o.IdleTimeout,
		MaxHeaderBytes:    o.HeaderBytes,
		TLSConfig:         o.TLS,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ErrorLog:          log.New(errorLog{o.Log}, "", 0),
		// A connection that a client has opened for HTTP/2 is pinged, and ends if the
		// client has vanished.
		HTTP2: &http.HTTP2Config{SendPingTimeout: time.Minute, WriteByteTimeout: o.PieceTimeout},
	}
	return s
}

// Serve implements [Service].
func (h *HTTP) Serve(l net.Listener) error {
	var err error
	if h.options.TLS != nil {
		err = h.server.ServeTLS(l, "", "")
	} else {
		err = h.server.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown implements [Service]. Handlers that are broken off have a second to return.
func (h *HTTP) Shutdown(ctx context.Context) error {
	// A connection that a handler has taken over is not the server's any more, but its handler
	// still runs.
	err := h.server.Shutdown(ctx)
	if err == nil {
		err = h.wait(ctx)
	}
	if err == nil {
		return nil
	}

	h.cancel(errEnd)
	late, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	return errors.Join(err, h.server.Close(), h.wait(late))
}

// wait waits until all handlers have returned.
func (h *HTTP) wait(ctx context.Context) error {
	h.mu.Lock()
	if h.running == 0 {
		h.mu.Unlock()
		return nil
	}
	if h.none == nil {
		h.none = make(chan struct{})
	}
	none := h.none
	h.mu.Unlock()

	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// count counts the handlers that run, which http.Server.Shutdown does not know of once
// they have taken over their connections.
func (h *HTTP) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.running++
		h.mu.Unlock()
		defer h.returned()
		next.ServeHTTP(w, r)
	})
}

// returned counts a handler that has returned.
func (h *HTTP) returned() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running--
	if h.running == 0 && h.none != nil {
		close(h.none)
		h.none = nil
	}
}

// errorLog receives the lines of an http.Server, most of which clients cause.
type errorLog struct{ events *quietlog.Log }

// Write implements io.Writer. It gets one line.
func (e errorLog) Write(line []byte) (int, error) {
	text := slog.String("last", clip(line))
	switch {
	case bytes.HasPrefix(line, []byte("http: panic serving")):
		e.events.Record(slog.LevelError, "a handler has panicked", slog.String("last", string(line)))
	case bytes.HasPrefix(line, []byte("http: TLS handshake error")):
		e.events.Record(slog.LevelDebug, "a TLS handshake has failed", text)
	default:
		e.events.Record(slog.LevelWarn, "a connection has failed", text)
	}
	return len(line), nil
}

// clip returns at most 200 bytes of a line, the end of the line cut.
func clip(line []byte) string { return string(bytes.TrimSpace(line[:min(len(line), 200)])) }

var _ io.Writer = errorLog{}
