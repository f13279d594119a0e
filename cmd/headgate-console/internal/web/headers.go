package web

import (
	"crypto/rand"
	"net/http"
)

// contentPolicy lets a page load resources from this origin only, and forbids
// inline scripts.
const contentPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; font-src 'self'; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// requestHeader holds the id of a request in the audit log and the log. The pages
// ignore the value that a client sends.
const requestHeader = "X-Request-Id"

// headers sets the headers of every answer. Handlers may replace them.
func (s *site) headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")

		// A browser that has once come by TLS comes by nothing else for a year.
		if s.Secure {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}

		h.Set(requestHeader, rand.Text())
		next.ServeHTTP(w, r)
	})
}
