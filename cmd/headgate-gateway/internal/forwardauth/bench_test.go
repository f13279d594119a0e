package forwardauth

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func BenchmarkHandler(b *testing.B) {
	f, end := open(b, Options{}, limit("all", "1000000000/1h", "ip"))
	defer end()
	r := httptest.NewRequest("GET", Path+"?deny_status=403", nil)
	r.RemoteAddr = proxy + ":4711"
	r.Header = lines("X-Original-Method: GET", "X-Original-URI: /api/users/1234?sort=name",
		"X-Forwarded-Host: shop.test", "X-Forwarded-For: 192.0.2.1")
	b.ReportAllocs()
	for b.Loop() {
		f.ServeHTTP(discard{http.Header{}}, r)
	}
}

// discard is a ResponseWriter that throws all away.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
