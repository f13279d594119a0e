package main

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func newServer(l *limiter.Limiter) *http.Server {
	limited := nethttp.New(l)
	answer := func(w http.ResponseWriter, r *http.Request, span string) {
		status, text := hold(r.Context(), span)
		w.WriteHeader(status)
		io.WriteString(w, text)
	}

	mux := http.NewServeMux()
	mux.Handle("GET /{$}", limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, "0s")
	})))
	mux.Handle("GET /hold", limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, r.FormValue("for"))
	})))
	// The probe of a load balancer is not limited.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })

	return &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
}

// maxHold is the longest that /hold holds a request.
const maxHold = time.Minute

// hold waits for the span, or until ctx ends, and returns the answer of a limited
// route.
func hold(ctx context.Context, span string) (status int, body string) {
	d, err := time.ParseDuration(span)
	if err != nil || d < 0 || d > maxHold {
		return http.StatusBadRequest, "for must be a span from 0s to 1m, as in /hold?for=200ms"
	}

	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}

	// Over the limit of a rule that degrades the request passes, and the handler does less.
	if limiter.Degraded(ctx) {
		return http.StatusOK, "degraded"
	}
	return http.StatusOK, "ok"
}
