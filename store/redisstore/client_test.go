package redisstore

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
)

// stranger is a Client without a server. Steps are allowed unless fail returns an error.
type stranger struct {
	kind    string
	fail    func(ctx context.Context, name string) error
	connect func(ctx context.Context) error // nil for at once

	mu       sync.Mutex
	names    []string // of the commands
	connects []string // the addresses to which it was to connect
}

func (s *stranger) Process(ctx context.Context, cmd redis.Cmder) error {
	s.mu.Lock()
	s.names = append(s.names, cmd.Name())
	s.mu.Unlock()

	if s.fail != nil {
		if err := s.fail(ctx, cmd.Name()); err != nil {
			return err
		}
	}
	if ints, ok := cmd.(rediscall.Ints); ok {
		ints.SetVal([]int64{7, 1, 4 * 5})
	}
	return nil
}

func (s *stranger) ProcessAll(ctx context.Context, cmds []redis.Cmder) error {
	var first error
	for _, cmd := range cmds {
		if err := s.Process(ctx, cmd); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (s *stranger) Connect(ctx context.Context, addr string, n int) (int, error) {
	s.mu.Lock()
	s.connects = append(s.connects, addr)
	s.mu.Unlock()

	if s.connect != nil {
		if err := s.connect(ctx); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (s *stranger) Each(ctx context.Context,
	f func(context.Context, func(context.Context, redis.Cmder) error) error) error {
	return f(ctx, s.Process)
}

func (s *stranger) Shard(keyOrTag string) string { return "server of " + keyOrTag }
func (s *stranger) Kind() string                 { return s.kind }

// seen returns the commands and the connects until now.
func (s *stranger) seen() (names, connects []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names), slices.Clone(s.connects)
}

func TestNewWithClientNamesEveryMistake(t *testing.T) {
	_, err := NewWithClient(nil, Options{Prefix: "a{b", Batch: -2})
	for _, want := range []string{"client is nil", `prefix "a{b" holds a brace`, "batch of -2"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// Steps about one subject share calls where its keys share a server.
func TestKindOfAClientSaysWhichStepsShareCalls(t *testing.T) {
	for kind, want := range map[string]sharing{"standalone": shareAll, "sentinel": shareAll, "cluster": shareSlot} {
		s, err := NewWithClient(&stranger{kind: kind}, Options{})
		if err != nil || s.wire.shared != want || s.servers.sharded != (kind == "cluster") {
			t.Errorf("%s: shares %d, sharded %t, %v", kind, s.wire.shared, s.servers.sharded, err)
		}
		if status := s.Report().Status(nil)[0]; status.Servers != kind {
			t.Errorf("the status of %s says %q", kind, status.Servers)
		}
	}
}

// A call is not made while the server is known not to be there, and the first trial that
// succeeds opens the way.
func TestOtherClientIsKeptFromAServerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		away := true
		c := &stranger{kind: "standalone"}
		c.fail = func(context.Context, string) error {
			if away {
				return refused
			}
			return nil
		}
		c.connect = func(ctx context.Context) error { return c.fail(ctx, "") }
		s, _ := NewWithClient(c, Options{})

		// The call that meets the refusal, and the trial that it begins.
		if _, err := takeOne(t.Context(), s, "k"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the first call: %v", err)
		}
		synctest.Wait()

		// It is not sent, and fails at once.
		_, err := takeOne(t.Context(), s, "k")
		var unsent interface{ Unsent() bool }
		if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &unsent) || !unsent.Unsent() {
			t.Errorf("the second call: %v", err)
		}
		if names, connects := c.seen(); len(names) != 1 || !slices.Equal(connects, []string{"server of hg:{k}:r:g"}) {
			t.Errorf("commands %v, trials at %q", names, connects)
		}

		away = false
		time.Sleep(redial)
		synctest.Wait()
		_, _ = takeOne(t.Context(), s, "k") // it begins a trial
		synctest.Wait()
		if d, err := takeOne(t.Context(), s, "k"); err != nil || !d.Allowed {
			t.Errorf("the server is back: %+v, %v", d, err)
		}
	})
}

// How far a server is shows in the second of two commands, which needs no connection.
func TestDistanceOfAFarServerIsMeasuredThroughAnotherClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const far = 400 * time.Millisecond
		dialled := false
		c := &stranger{kind: "standalone", fail: func(ctx context.Context, name string) error {
			if name != "exists" {
				<-ctx.Done()
				return ctx.Err()
			}
			if !dialled {
				time.Sleep(2 * far)
				dialled = true
			}
			time.Sleep(far)
			return nil
		}}
		s, _ := NewWithClient(c, Options{MaxTimeout: 10 * time.Second})

		if _, err := takeOne(t.Context(), s, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(4 * far)
		synctest.Wait()
		if got := s.servers.single.budget(); got != roundTrips*far {
			t.Errorf("a call may take %v, want %v", got, roundTrips*far)
		}
	})
}

// A context without a timer ends as one with a timer does.
func TestDeadlineContextEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, asked := range []bool{false, true} {
			begun := time.Now()
			d := &deadlineContext{Context: t.Context(), end: begun.Add(time.Second)}
			if asked {
				d.Done()
			}
			if end, ok := d.Deadline(); !ok || !end.Equal(begun.Add(time.Second)) || d.Err() != nil {
				t.Errorf("asked %t: %v, %v at the beginning", asked, end, d.Err())
			}
			time.Sleep(time.Second - time.Nanosecond)
			if d.Err() != nil {
				t.Errorf("asked %t: %v a nanosecond early", asked, d.Err())
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if d.Err() != context.DeadlineExceeded {
				t.Errorf("asked %t: %v at the end", asked, d.Err())
			}
			<-d.Done()
			d.cancel()
		}
	})
}

// Cancelling ends it, and what is derived from it, whether or not Done was called before.
func TestDeadlineContextIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, asked := range []bool{false, true} {
			d := &deadlineContext{Context: t.Context(), end: time.Now().Add(time.Hour)}
			if asked {
				d.Done()
			}
			d.cancel()
			if <-d.Done(); d.Err() != context.Canceled {
				t.Errorf("asked %t: %v", asked, d.Err())
			}
		}

		outer, cancel := context.WithCancel(t.Context())
		d := &deadlineContext{Context: outer, end: time.Now().Add(time.Hour)}
		cancel()
		if d.Err() != context.Canceled {
			t.Errorf("the caller has left: %v", d.Err())
		}
		d.cancel()
	})
}

// A context that is derived from it takes no goroutine.
func TestDeadlineContextNeedsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deadlineContext{Context: t.Context(), end: time.Now().Add(time.Hour)}
		before := runtime.NumGoroutine()
		inner, cancel := context.WithCancel(d)
		if n := runtime.NumGoroutine() - before; n != 0 {
			t.Errorf("%d goroutines more", n)
		}
		d.cancel()
		<-inner.Done()
		cancel()
	})
}
