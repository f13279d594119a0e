package try

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/test"
)

// Request is a request of a client. The zero value is GET /.
type Request struct {
	Method, Path string
	Header       map[string]string
	Form         url.Values // makes it a POST
	From         string     // the client's own address, such as "127.0.0.2"
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

// Ask sends the request and reads the answer.
func (s *Service) Ask(r Request) Answer {
	s.t.Helper()
	a, err := s.ask(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// Get asks for a path.
func (s *Service) Get(path string) Answer {
	s.t.Helper()
	return s.Ask(Request{Path: path})
}

// Burst sends the request n times at once and returns how often it got each
// status.
func (s *Service) Burst(n int, r Request) map[int]int {
	s.t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	statuses := map[int]int{}
	for range n {
		all.Go(func() {
			a, err := s.ask(r)
			if err != nil {
				s.t.Error(err)
				return
			}
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

func (s *Service) ask(r Request) (Answer, error) {
	req, err := s.request(r)
	if err != nil {
		return Answer{}, err
	}
	client := s.client
	if r.From != "" {
		client = &http.Client{Transport: s.from(r.From)}
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, resp.Header, strings.TrimSpace(string(body))}, err
}

func (s *Service) request(r Request) (*http.Request, error) {
	var body io.Reader
	if r.Form != nil {
		body = strings.NewReader(r.Form.Encode())
		r.Method = "POST"
	}
	req, err := http.NewRequest(r.Method, s.URL+r.Path, body)
	if err != nil {
		return nil, err
	}
	if r.Form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range r.Header {
		req.Header.Set(name, value)
	}
	return req, nil
}

// from makes connections that come from another address of loopback.
func (s *Service) from(addr string) *http.Transport {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, target string) (net.Conn, error) {
			return d.DialContext(ctx, network, target)
		},
	}
}

// NeedAddress skips the test where loopback has no such address, as on macOS.
func NeedAddress(t testing.TB, addrs ...string) {
	t.Helper()
	for _, addr := range addrs {
		l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
		if err != nil {
			test.Skip(t, fmt.Sprintf("no address %s: %v", addr, err))
		}
		_ = l.Close()
	}
}
