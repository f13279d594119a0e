// Package try sends requests to the handlers of the example programs in tests.
package try

import (
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// Request is a request of a client. The zero value is GET /.
type Request struct {
	Method, Path string
	Header       map[string]string
	Form         url.Values // makes it a POST
	From         string     // the client's address; "" means 192.0.2.1
}

// Answer is the answer to a request.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Show returns the headers' values, separated by spaces, with "-" for a missing
// one.
func (a Answer) Show(headers ...string) string {
	var shown []string
	for _, h := range headers {
		value := strings.Join(a.Header.Values(h), " and ")
		if value == "" {
			value = "-"
		}
		shown = append(shown, value)
	}
	return strings.Join(shown, " ")
}

// Ask has the handler answer the request.
func Ask(h http.Handler, r Request) Answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.request())
	return Answer{w.Code, w.Header(), strings.TrimSpace(w.Body.String())}
}

// Get has the handler answer a GET of the path.
func Get(h http.Handler, path string) Answer { return Ask(h, Request{Path: path}) }

// Burst sends the request n times at once and returns how often it got each
// status.
func Burst(h http.Handler, n int, r Request) map[int]int {
	var mu sync.Mutex
	var all sync.WaitGroup
	statuses := map[int]int{}

	for range n {
		all.Go(func() {
			a := Ask(h, r)
			mu.Lock()
			defer mu.Unlock()
			statuses[a.Status]++
		})
	}

	all.Wait()
	return statuses
}

// Same fails the test if the counts differ from the wanted ones.
func Same(t testing.TB, what string, got, want map[int]int) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (r Request) request() *http.Request {
	path := r.Path
	if path == "" {
		path = "/"
	}

	// A form is sent by POST, as a browser does.
	method := r.Method
	if r.Form != nil {
		method = http.MethodPost
	}

	q := httptest.NewRequest(method, path, strings.NewReader(r.Form.Encode()))
	if r.Form != nil {
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range r.Header {
		q.Header.Set(name, value)
	}

	// Limits see the address. The port is any.
	if r.From != "" {
		q.RemoteAddr = net.JoinHostPort(r.From, "1234")
	}

	return q
}
