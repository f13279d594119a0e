package web

import (
	"crypto/rand"
	"net/http"
)

// contentPolicy lets a page load what comes from here alone, and run nothing that
// stands in it.
const contentPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// requestHeader has the name under which the audit log and the log know a request.
// What a client sends in it is nobody's business here.
const requestHeader = "X-Request-Id"

// headers sets those that every answer has. Who answers may replace them.
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
		if s.Secure {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		h.Set(requestHeader, rand.Text())
		next.ServeHTTP(w, r)
	})
}
