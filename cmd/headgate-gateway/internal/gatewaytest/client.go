package gatewaytest

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Client returns a client that connects from the loopback address, such as 127.0.0.9, so
// that proxies see callers at different addresses.
func Client(t testing.TB, from string) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: Patience}
}

// Answer is the answer to a request, whole.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Do sends a request and reads the answer. The headers of the request are sent as they are
// spelled; h may be nil.
func Do(t testing.TB, c *http.Client, method, url string, h http.Header) Answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}

	for name, values := range h {
		r.Header[name] = values
	}

	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{answer.StatusCode, answer.Header, string(body)}
}

// Service is a service behind a proxy, which answers "hello" with 200.
type Service struct {
	Addr string

	mu   sync.Mutex
	seen []*http.Request
}

// Serve starts a service that ends with the test.
func Serve(t testing.TB) *Service {
	t.Helper()
	s := &Service{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r)
		s.mu.Unlock()
		io.WriteString(w, "hello")
	}))
	t.Cleanup(server.Close)
	s.Addr = server.Listener.Addr().String()
	return s
}

// Seen returns the requests that came since the last call.
func (s *Service) Seen() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.seen
	s.seen = nil
	return list
}
