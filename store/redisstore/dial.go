// This file learns why the client has no connection.

package redisstore

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/redis/go-redis/v9"
)

// maxDials is how many dials of a store may be in progress.
const maxDials = 4

// dialCheck dials beside a call of a client that has no connection. By itself the
// client dials five times, 100 ms apart, and answers with the end of the caller's
// deadline, whatever kept it from connecting. The check finds the true cause, and ends
// the call at once if the call before has failed too.
//
// It never ends a call unless it has reached the server itself before: a hook of the
// client may dial in another way, or answer without a server.
type dialCheck struct {
	trust  atomic.Int32
	proven atomic.Bool   // the check has reached the server
	slots  chan struct{} // nil for a client of several servers, for which there is no check
}

// How far a client is trusted.
const (
	trusted  = iota // the last call met a server
	untried         // there was no call yet
	mistaken        // the last call met no server
)

// begin makes the check ready for use.
func (c *dialCheck) begin(client redis.UniversalClient) {
	if _, single := client.(*redis.Client); single {
		c.slots = make(chan struct{}, maxDials)
		c.trust.Store(untried)
	}
}

// note judges the client by the result of a call.
func (c *dialCheck) note(err error) {
	trust := int32(trusted)
	if err != nil && doubtsTopology(err) {
		trust = mistaken
	}
	if c.slots != nil && trust != c.trust.Load() {
		c.trust.Store(trust)
	}
}

// dialError is why no connection was made beside a call. The call itself may have
// reached the server, if the server came back in that very moment.
type dialError struct{ err error }

func (e *dialError) Error() string { return "no connection: " + e.err.Error() }

// Unwrap returns the error of the dial.
func (e *dialError) Unwrap() error { return e.err }

// sendChecked sends the command as sendCommand does, and dials beside it if the
// client has no connection.
func (s *Store) sendChecked(ctx context.Context, cmd rediscall.Ints) error {
	client, _ := s.client.(*redis.Client)
	if client.PoolStats().TotalConns > 0 {
		return s.sendCommand(ctx, cmd)
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	found := make(chan error, 1)
	timeout := s.timeout
	select {
	case s.dials.slots <- struct{}{}:
		go func() {
			defer func() { <-s.dials.slots }()
			err := dial(within, client.Options(), timeout)
			if err == nil {
				s.dials.proven.Store(true)
				return
			}
			found <- &dialError{err}
			if s.dials.proven.Load() && s.dials.trust.Load() == mistaken {
				cancel(err)
			}
		}()
	default:
	}
	err := s.sendCommand(within, cmd)
	if !hidesCause(err) {
		return err
	}
	select {
	case err = <-found:
	default:
	}
	return err
}

// hidesCause reports whether a call ended before its client had an answer, or knew
// why there was none.
func hidesCause(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrPoolTimeout)
}

// dial returns why no connection can be made, or nil. It may go on after the call.
func dial(ctx context.Context, o *redis.Options, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return rediscall.Safely(ctx, func(ctx context.Context) error {
		conn, err := o.Dialer(ctx, o.Network, o.Addr)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
}

// refused reports whether the server is not there to be asked again. The client of
// a Cluster may find another one.
func (s *Store) refused(err error) bool {
	return s.dials.slots != nil && errors.Is(err, syscall.ECONNREFUSED)
}
