package transport

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// roundTripper is a base that is a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// server answers requests with a handler, and keeps when each was answered with which status.
type server struct {
	handler http.Handler

	mu    sync.Mutex
	begun time.Time // when the first request came
	log   []answer
}

type answer struct {
	at     time.Duration // since the first
	status int
	wait   time.Duration // of Retry-After
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	// The contract of a RoundTripper: the body is closed, whatever comes of the request.
	if r.Body != nil {
		defer r.Body.Close()
	}
	w := httptest.NewRecorder()

	// The lock is held while the handler runs, so the log has the order in which requests were
	// counted.
	s.mu.Lock()
	s.handler.ServeHTTP(w, r)
	if len(s.log) == 0 {
		s.begun = time.Now()
	}

	wait, _ := strconv.Atoi(w.Header().Get("Retry-After"))
	s.log = append(s.log, answer{time.Since(s.begun), w.Code, seconds(int64(wait))})
	s.mu.Unlock()
	return w.Result(), nil
}

// statuses returns how many answers had each status.
func (s *server) statuses() map[int]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[int]int{}
	for _, a := range s.log {
		n[a.status]++
	}
	return n
}

// times returns when the handler was called, since the first request.
func (s *server) times() (all []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.log {
		all = append(all, a.at)
	}
	return all
}

// saying returns a server whose first answers have these statuses and fields, each as "429
// Retry-After: 3|X: y". The last one is repeated.
func saying(answers ...string) *server {
	return &server{handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// The closure keeps what is still to be said; the last answer stays.
		answer := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}

		status, fields, _ := strings.Cut(answer, " ")
		for _, field := range strings.Split(fields, "|") {
			if name, value, ok := strings.Cut(field, ": "); ok {
				w.Header().Add(name, value)
			}
		}

		n, _ := strconv.Atoi(status)
		w.WriteHeader(n)
	})}
}

// limitedServer returns a server of our own that counts all requests under one limit.
func limitedServer(limit string, style limiter.HeaderStyle) *server {
	l := limiter.MustNew(limiter.Config{Headers: style, Rules: []limiter.Rule{{
		Limit: core.MustParseLimit(limit), Key: keyfuncs.Global,
	}}})
	return &server{handler: nethttp.New(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))}
}

// crowd sends requests from n goroutines for a time.
func crowd(t *testing.T, tr http.RoundTripper, n int, span time.Duration) {
	t.Helper()
	end := time.Now().Add(span)

	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			// The deadline ends those who would wait beyond the time of the test.
			for time.Now().Before(end) {
				ctx, cancel := context.WithDeadline(t.Context(), end)
				resp, err := tr.RoundTrip(get(ctx))
				cancel()

				// Two errors are to be expected of a crowd: it is over the limit, or out of time.
				if err != nil {
					var limited *LimitedError
					if !errors.As(err, &limited) && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					return
				}
				resp.Body.Close()
			}
		})
	}

	all.Wait()
}

func get(ctx context.Context) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
	if err != nil {
		panic(err)
	}
	return r
}

// withJitter has all waits of a test last longer by the same part of the greatest jitter.
func withJitter(t *testing.T, part float64) {
	old := jitter
	jitter = func(wait time.Duration) time.Duration {
		return time.Duration(part * float64(min(wait/jitterPart, maxJitter)))
	}
	t.Cleanup(func() { jitter = old })
}
