package server

import (
	"context"
	"errors"
	"net/http"
	"syscall"
	"time"
)

// healthTime is how long the database may take to answer.
const healthTime = 2 * time.Second

// Health answers GET and HEAD with 200 while healthy returns nil, and with 503 otherwise.
// The answer says whether the disk is full, and nothing else of the error. While the console is
// healthy and has something to complain of, remark returns it, and the answer has it in its second
// line; "" is nothing.
func Health(healthy func(context.Context) error, remark func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}

		ctx, cancel := context.WithTimeout(r.Context(), healthTime)
		defer cancel()

		// What a cache says about the database may be long past.
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")

		if err := healthy(ctx); err != nil {
			text := "the database is not available\n"
			if errors.Is(err, syscall.ENOSPC) {
				text = "the disk is full\n"
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write([]byte(text))
			return
		}
		w.Write([]byte("ok\n"))
		if text := remark(); text != "" {
			w.Write([]byte(text + "\n"))
		}
	})
}
