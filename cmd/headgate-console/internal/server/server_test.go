package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/internal/test"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

func serve(t *testing.T, ctx context.Context, h http.Handler) (url string, ended <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, nil, h, slog.New(slog.DiscardHandler)) }()
	return "http://" + l.Addr().String(), done
}

func TestServeFinishesRunningRequests(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	inside, leave := make(chan struct{}), make(chan struct{})
	url, ended := serve(t, ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(inside)
		<-leave
		io.WriteString(w, "done")
	}))

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()

	answer := make(chan string, 1)
	go func() {
		r, err := client.Get(url)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		answer <- string(body)
	}()

	<-inside

	// The server is told to end while the request is inside, and waits for it.
	stop()
	select {
	case err := <-ended:
		t.Fatalf("the server ended before the request: %v", err)
	default:
	}

	// The answer is whole, and only then does the server end.
	close(leave)
	if got := <-answer; got != "done" {
		t.Errorf("the answer is %q", got)
	}

	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestBodyTooLongIsNotRead(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())

	result := make(chan error, 1)
	url, ended := serve(t, ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		result <- err
	}))

	client := &http.Client{Transport: &http.Transport{}}

	// The server may cut the connection while the body is sent, so the error of the client says
	// nothing.
	if r, err := client.Post(url, "text/plain", strings.NewReader(strings.Repeat("x", bodyBytes+1))); err == nil {
		r.Body.Close()
	}

	// One byte more than the bound is enough for the handler's reading to fail.
	var tooLong *http.MaxBytesError
	if err := <-result; !errors.As(err, &tooLong) {
		t.Errorf("reading it: %v", err)
	}

	client.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The largest body of a route arrives whole: a file of overrides.
func TestLargestBodyIsRead(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var most *http.MaxBytesError
	url, ended := serve(t, ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, service.MaxOverridesFile))
		fmt.Fprint(w, n, errors.As(err, &most))
	}))

	client := &http.Client{Transport: &http.Transport{}}
	r, err := client.Post(url, "text/plain", strings.NewReader(strings.Repeat("x", service.MaxOverridesFile)))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if want := fmt.Sprint(service.MaxOverridesFile, false); string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}

	client.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestHealthFollowsTheDatabase(t *testing.T) {
	for _, row := range []struct {
		err    error
		status int
		text   string
	}{
		{nil, 200, "ok\na remark\n"},
		{errors.New("a secret"), 503, "the database is not available\n"},
		{fmt.Errorf("a secret: %w", syscall.ENOSPC), 503, "the disk is full\n"},
	} {
		w := httptest.NewRecorder()
		health := Health(func(context.Context) error { return row.err }, func() string { return "a remark" })
		health.ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
		if w.Code != row.status || w.Body.String() != row.text {
			t.Errorf("%d %q, want %d %q", w.Code, w.Body.String(), row.status, row.text)
		}
	}
}
