package main

import (
	"io"
	"net/http"

	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func newNetHTTP(l *limiter.Limiter) serve.Server {
	limited := nethttp.New(l)
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, body(r.Context()))
	})))
	mux.Handle("GET /hold", limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hold(r.Context(), r.URL.Query().Get("for")) {
			http.Error(w, holdUsage, http.StatusBadRequest)
			return
		}
		io.WriteString(w, body(r.Context()))
	})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	return serve.HTTP(mux)
}
