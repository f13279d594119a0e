package redisstore

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/freeport"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/observe/findings"
)

func unit() []core.Op {
	return []core.Op{{Rule: "r", Key: "k", Limit: core.Limit{Quota: 10, Period: time.Hour}, Cost: 1}}
}

// The calls of these tests may take an hour. They return at once, so they have not
// waited for the client to dial again, with any of its settings.
func TestDialRefusedIsReportedAtOnce(t *testing.T) {
	rows := map[string]redis.Options{
		"default":           {},
		"heeding deadlines": {ContextTimeoutEnabled: true},
		"dialling once":     {DialerRetries: 1},
	}

	for name, o := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Addr = freeport.Addr(t)
			c := redis.NewClient(&o)
			defer c.Close()

			s := MustNew(c, Options{Timeout: time.Minute})

			// As after a call that has failed: the store does not trust the client's connections.
			s.connector.dials.trust.Store(mistaken)
			s.connector.dials.proven.Store(true)

			for range 3 {
				err := s.Apply(t.Context(), unit(), make([]core.Decision, 1))
				if !errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// A client with connections is not dialled beside.
func TestDialIsLeftOutWithAConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)

	// The dials of the client and of the store are the same function's.
	var dials atomic.Int32
	var dialer net.Dialer
	c := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return dialer.DialContext(ctx, network, addr)
		}})
	defer c.Close()

	// One connection is open before the store exists.
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}

	s := MustNew(c, Options{Timeout: time.Minute})
	before := dials.Load()
	for range 10 {
		if err := s.Apply(t.Context(), unit(), make([]core.Decision, 1)); err != nil {
			t.Fatal(err)
		}

		// Mistrust alone does not make the store dial while the client has a connection.
		s.connector.dials.trust.Store(mistaken)
	}

	if n := dials.Load() - before; n != 0 {
		t.Errorf("%d dials", n)
	}
}

// The call beside a dial may have run, so it is not sent again.
func TestDialErrorDoesNotProveThatNothingRan(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	if err := error(&dialError{refused}); neverRan(err) || !errors.Is(err, syscall.ECONNREFUSED) ||
		err.Error() != "no connection: dial: connection refused" {
		t.Errorf("%v", err)
	}
	if !neverRan(refused) {
		t.Error("a dial of the client itself")
	}
}

// panicking is a hook that panics.
type panicking struct{ redis.Hook }

func (panicking) DialHook(next redis.DialHook) redis.DialHook { return next }
func (panicking) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { panic("a hook") }
}
func (panicking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A check that has never reached the server does not end the first call before its time, as
// hooks of the client may dial in another way. The error has the true cause too. Later calls
// fail at once, and trials go on.
func TestDialRefusedIsTheCauseOfTheFirstFailure(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		refuse := func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, Dialer: refuse})
		defer c.Close()

		s := MustNew(c, Options{})

		// The first call waits until its time is up, and those after it know already.
		for _, want := range []time.Duration{DefaultTimeout, 0, 0} {
			start := time.Now()
			err := s.Apply(t.Context(), unit(), make([]core.Decision, 1))
			if took := time.Since(start); !errors.Is(err, syscall.ECONNREFUSED) || took != want {
				t.Errorf("%v after %v, want it after %v", err, took, want)
			}
		}

		if trust := s.connector.dials.trust.Load(); trust != mistaken || s.connector.dials.proven.Load() {
			t.Errorf("trust %d, proven %t", trust, s.connector.dials.proven.Load())
		}
		time.Sleep(time.Minute) // ends the client's dials
	})
}

// The first call proves the check, so that calls after the server's end fail at once.
func TestDialIsProvenByTheFirstCall(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	defer c.Close()

	s := MustNew(c, Options{Timeout: time.Minute})
	if err := s.Apply(t.Context(), unit(), make([]core.Decision, 1)); err != nil {
		t.Fatal(err)
	}
	for range maxDials { // wait until the dial has ended
		s.connector.dials.slots <- struct{}{}
	}
	for range maxDials {
		<-s.connector.dials.slots
	}
	if !s.connector.dials.proven.Load() {
		t.Fatal("not proven")
	}

	// Without the server the first call is cut short: its failure makes the store dial.
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Apply(ctx, unit(), make([]core.Decision, 1)); err == nil {
		t.Error("decided without a server")
	}

	for range 3 {
		err := s.Apply(t.Context(), unit(), make([]core.Decision, 1))
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v", err)
		}
	}
}

// In a goroutine of the store it would end the process.
func TestPanicOfAHookIsAnError(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: freeport.Addr(t)})
	defer c.Close()
	c.AddHook(panicking{})
	s := MustNew(c, Options{Timeout: time.Minute})
	err := s.Apply(t.Context(), unit(), make([]core.Decision, 1))
	if err == nil || err.Error() != "redisstore: the Redis client panicked: a hook" {
		t.Errorf("%v", err)
	}
	if found := s.Report().Diagnose(t.Context(), nil); len(found) == 0 ||
		found[len(found)-1].Code != findings.Unanswered {
		t.Errorf("found %v", found)
	}
}
