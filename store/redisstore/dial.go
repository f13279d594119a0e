// This file learns why the client has no connection.

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	slots  chan struct{} // nil for a client of several servers, beside whose calls there is no dial

	after  chan struct{}              // a slot for each dial after a late call
	sought atomic.Bool                // a call has waited for the cause since the last that was answered
	latest atomic.Pointer[deadServer] // why the last such dial failed; nil if it did not
}

// deadServer is why a server could not be reached.
type deadServer struct {
	err error
	at  time.Time
}

const (
	// maxWaitForCause is how long a call that is late already waits for the cause, if it is
	// the first since a call was answered.
	maxWaitForCause = 10 * time.Millisecond

	// causeStands is how long a cause explains other late calls.
	causeStands = time.Second
)

// How far a client is trusted.
const (
	trusted  = iota // the last call met a server
	untried         // there was no call yet
	mistaken        // the last call met no server
)

// begin makes the check ready for use.
func (c *dialCheck) begin(client redis.UniversalClient) {
	c.after = make(chan struct{}, maxDials)
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
	} else if c.sought.Load() {
		c.sought.Store(false)
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

// lateError is why a call was late, as far as that is known.
type lateError struct{ err error }

func (e *lateError) Error() string { return "no answer in time: " + e.err.Error() }

// Unwrap returns the error of the client.
func (e *lateError) Unwrap() error { return e.err }

// causeOf returns an error that says why the command was late, or err. The client itself may
// only know the end of the deadline: it dials a server that refuses connections again and
// again until then. So the store dials the server once more, and the first late call waits a
// moment for that. A server that hangs lets it connect.
func (s *Store) causeOf(ctx context.Context, cmd rediscall.Ints, err error) error {
	var beside *dialError
	if !isLate(err) || errors.As(err, &beside) {
		return err
	}
	if known := s.dials.known(); known != nil {
		return known
	}
	found, key := make(chan error, 1), firstKey(cmd) // the memory of the command is used again
	select {
	case s.dials.after <- struct{}{}:
		go func() {
			defer func() { <-s.dials.after }()
			found <- s.dialServer(ctx, key)
		}()
	default:
		return &lateError{err}
	}
	if !s.dials.sought.CompareAndSwap(false, true) {
		return &lateError{err}
	}
	timer := time.NewTimer(maxWaitForCause)
	defer timer.Stop()
	select {
	case cause := <-found:
		if cause != nil {
			return &dialError{cause}
		}
	case <-timer.C:
	}
	return &lateError{err}
}

// explainLate returns an error that says why a step was late which shared a call with others,
// or err.
func (s *Store) explainLate(err error) error {
	if !isLate(err) {
		return err
	}
	if known := s.dials.known(); known != nil {
		return known
	}
	return &lateError{err}
}

// known returns a cause that was found a moment ago, or nil.
func (c *dialCheck) known() error {
	if d := c.latest.Load(); d != nil && time.Since(d.at) < causeStands {
		return &dialError{d.err}
	}
	return nil
}

// dialServer returns why the server that has the key cannot be reached, or nil.
func (s *Store) dialServer(ctx context.Context, key string) error {
	o := s.serverOf(ctx, key)
	if o == nil {
		return nil
	}
	err := dial(ctx, o, s.timeout)
	if err == nil {
		s.dials.latest.Store(nil)
		return nil
	}
	s.dials.latest.Store(&deadServer{err, time.Now()})
	return err
}

// serverOf returns the options of the client of the server that has the key, or nil if it is
// not known.
func (s *Store) serverOf(ctx context.Context, key string) (o *redis.Options) {
	_ = rediscall.Safely(ctx, func(context.Context) error {
		switch c := s.client.(type) {
		case *redis.Client:
			o = c.Options()
		case *redis.ClusterClient:
			if !s.mapped.Load() {
				return nil // the client would ask for its table now
			}
			if server, err := c.MasterForKey(context.Background(), key); err == nil {
				o = server.Options()
			}
		case *redis.Ring:
			if server, err := c.GetShardClientForKey(key); err == nil {
				o = server.Options()
			}
		}
		return nil
	})
	return o
}

// firstKey returns the first key of a script call.
func firstKey(cmd rediscall.Ints) string {
	if args := cmd.Args(); len(args) > 3 {
		return fmt.Sprint(args[3])
	}
	return ""
}

// isLate reports whether a call ended at its deadline.
func isLate(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout) || errors.As(err, &network) && network.Timeout()
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
