package main

import (
	"context"
	"net/http"
)

type userKey struct{}

// authenticate stands in for a real log-in: it knows one token. It runs before the
// limiter, so that a policy can count by user.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer alice-token" {
			r = r.WithContext(context.WithValue(r.Context(), userKey{}, "alice"))
		}
		next.ServeHTTP(w, r)
	})
}

// userOf returns the user who is signed in.
func userOf(ctx context.Context) (id string, ok bool) {
	id, ok = ctx.Value(userKey{}).(string)
	return id, ok
}
