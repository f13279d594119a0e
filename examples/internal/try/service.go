// Package try starts example programs in tests and sends them requests over
// loopback.
package try

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/store/memstore"
)

// epoch is the first time of the clock of a program's store.
var epoch = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// Service is a program that runs until the test ends.
type Service struct {
	URL string

	t      testing.TB
	clock  atomic.Int64
	lines  *bufio.Reader
	client *http.Client
	stop   context.CancelFunc
	exit   chan int
}

// Start runs the program with a store whose clock stands still; see [Service.Pass].
func Start(t testing.TB, p serve.Program, args ...string) *Service {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	s := &Service{t: t, client: client, stop: stop, exit: make(chan int, 1)}
	s.clock.Store(epoch.UnixMicro())
	r, w := io.Pipe()
	s.lines = bufio.NewReader(r)
	call := serve.Call{
		Name: "example", Args: append([]string{"-addr", "127.0.0.1:0"}, args...), Out: w, Err: w,
		Store: memstore.MustNew(memstore.Options{Clock: s.clock.Load}),
	}
	go func() {
		s.exit <- call.Run(ctx, p)
		_ = w.Close()
	}()
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		_ = r.Close() // the test has stopped reading
		if status := s.Stop(); status != 0 {
			t.Errorf("exit status %d", status)
		}
	})
	line := s.Line()
	url, ok := strings.CutPrefix(line, "listening on ")
	if !ok {
		t.Fatalf("said %q", line)
	}
	s.URL = url
	return s
}

// Leave tells the program to end and returns once it accepts no more connections.
// Requests in flight go on.
func (s *Service) Leave() {
	s.stop()
	for {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			return
		}
		_ = c.Close()
	}
}

// Stop tells the program to end and returns its exit status once it has.
func (s *Service) Stop() int {
	s.stop()
	status := <-s.exit
	s.exit <- status // for further calls
	return status
}

// Line returns the next line that the program writes.
func (s *Service) Line() string {
	s.t.Helper()
	line, err := s.lines.ReadString('\n')
	if err != nil {
		s.t.Fatalf("said %q: %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// Pass moves the clock of the store on.
func (s *Service) Pass(d time.Duration) { s.clock.Add(d.Microseconds()) }

// Attempt runs the program with a context that has ended, so that it does not
// serve. It returns the exit status and the error output.
func Attempt(p serve.Program, args ...string) (status int, wrote string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var b strings.Builder
	call := serve.Call{Name: "example", Args: append([]string{"-addr", "127.0.0.1:0"}, args...), Out: io.Discard, Err: &b}
	return call.Run(ctx, p), b.String()
}
