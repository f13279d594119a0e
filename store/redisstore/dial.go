// This file learns why the client has no connection.

package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
	"github.com/redis/go-redis/v9"
)

// maxDials is how many dials of a store may be in progress.
const maxDials = 8

// dialCheck dials beside a client that has no connection. By itself the client dials five
// times, 100 ms apart, and answers with the end of the caller's deadline, whatever kept it
// from connecting. The check finds the true cause.
//
// It never ends a call unless it has reached the server itself before: a hook of the
// client may dial in another way, or answer without a server.
type dialCheck struct {
	trust  atomic.Int32
	proven atomic.Bool   // the check has reached the server
	used   atomic.Int64  // when a client was that the check cannot reach, in Unix milliseconds
	slots  chan struct{} // a slot for each dial beside
	single bool          // the client has one server
}

const (
	// maxWaitForCause is how long a call that is late already waits for the cause, if it has
	// begun to look for it.
	maxWaitForCause = 10 * time.Millisecond

	// useAgain is the minimum pause between two uses of a client that the check cannot reach.
	useAgain = time.Second
)

// How far a client is trusted.
const (
	trusted  = iota // no server is doubted
	untried         // there was no call yet
	mistaken        // a server is doubted
)

// begin makes the check ready for use.
func (c *dialCheck) begin(client redis.UniversalClient) {
	c.slots = make(chan struct{}, maxDials)
	if _, c.single = client.(*redis.Client); c.single {
		c.trust.Store(untried)
	}
}

// mayUseClient reports whether the client may be used although the server cannot be dialled:
// once in a while, unless it could be before.
func (c *dialCheck) mayUseClient(now time.Time) bool {
	at, last := now.UnixMilli(), c.used.Load()
	return !c.proven.Load() && at-last >= useAgain.Milliseconds() && c.used.CompareAndSwap(last, at)
}

// dialError is why no connection was made beside a call. The call itself may have
// reached the server, if the server came back in that very moment.
type dialError struct{ err error }

func (e *dialError) Error() string { return "no connection: " + e.err.Error() }

// Unwrap returns the error of the dial.
func (e *dialError) Unwrap() error { return e.err }

// sendChecked sends the command as sendCommand does: for the first time with a dial beside,
// and later only if the door to the server is not shut.
func (s *Store) sendChecked(ctx context.Context, cmd rediscall.Ints) error {
	if s.dials.trust.Load() == untried {
		return s.sendFirst(ctx, cmd)
	}

	key := firstKey(cmd)
	if err := s.pass(ctx, key); err != nil {
		return err
	}
	err := s.sendCommand(ctx, cmd)
	var reply redis.Error
	if err == nil || errors.As(err, &reply) && !unwelcome(err) {
		s.relieve(key)
	}
	return err
}

// sendFirst sends a command of a client that was not used before, and dials beside it.
func (s *Store) sendFirst(ctx context.Context, cmd rediscall.Ints) error {
	client, _ := s.client.(*redis.Client)
	if client.PoolStats().TotalConns > 0 {
		return s.noteFirst(s.sendCommand(ctx, cmd))
	}

	found := make(chan error, 1)
	go func() { found <- s.dialBeside(client) }()
	err := s.noteFirst(s.sendCommand(ctx, cmd))
	if !hidesCause(err) {
		return err
	}
	select {
	case cause := <-found:
		if cause != nil {
			return &dialError{cause}
		}
	default:
	}
	return err
}

// noteFirst trusts the client if it was answered, and returns err.
func (s *Store) noteFirst(err error) error {
	var reply redis.Error
	if err == nil || errors.As(err, &reply) && !unwelcome(err) {
		s.dials.trust.CompareAndSwap(untried, trusted)
	}
	return err
}

// lateError is why a call was late, as far as that is known.
type lateError struct{ err error }

func (e *lateError) Error() string { return "no answer in time: " + e.err.Error() }

// Unwrap returns the error of the client.
func (e *lateError) Unwrap() error { return e.err }

// causeOf doubts the server if the error of the command is one of the way to it, and returns
// an error that says why a command was late, or err. The client itself may only know the end
// of the deadline: it dials a server that refuses connections again and again until then. A
// server that hangs lets the store dial it.
func (s *Store) causeOf(cmd rediscall.Ints, err error) error {
	var shut *shutError
	if errors.As(err, &shut) || errors.Is(err, core.ErrOverload) {
		return err
	}
	if !isLate(err) && !broken(err) && !errors.Is(err, context.Canceled) {
		return err
	}
	run, began := s.doubt(firstKey(cmd), err)
	var beside *dialError
	if !isLate(err) || errors.As(err, &beside) {
		return err
	}
	if run != nil && began {
		timer := time.NewTimer(maxWaitForCause)
		defer timer.Stop()
		select {
		case <-run.dialled:
		case <-timer.C:
		}
	}
	if cause := run.cause(); cause != nil {
		return &dialError{cause}
	}
	return s.explainLate(err)
}

// cause returns why the server cannot be dialled, or nil if that is not known.
func (r *trialRun) cause() error {
	if r == nil {
		return nil
	}
	select {
	case <-r.dialled:
		return r.found
	default:
		return nil
	}
}

// explainLate returns an error that says why a call or a step was late, or err.
func (s *Store) explainLate(err error) error {
	if !isLate(err) {
		return err
	}
	if s.dials.trust.Load() == mistaken {
		if known := s.doors.known(); known != nil {
			return known
		}
	}
	return &lateError{err}
}

// errDialling means that too many dials of a store are in progress.
var errDialling = fmt.Errorf("%d dials are in progress: %w", maxDials, context.DeadlineExceeded)

// dialBeside returns why the server cannot be dialled, or nil. A dialler may go on after its
// deadline, as that of the client does over TLS; the call does not.
func (s *Store) dialBeside(server *redis.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeouts*s.timeout)
	defer cancel()
	select {
	case s.dials.slots <- struct{}{}:
	default:
		return errDialling
	}

	found := make(chan error, 1)
	go func() {
		defer func() { <-s.dials.slots }()
		err := s.dialOneOf(ctx, s.optionsOf(server))
		if err == nil {
			s.dials.proven.Store(true)
		}
		found <- err
	}()
	select {
	case err := <-found:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// optionsOf returns how the server is dialled, or how all are of which the client knows.
func (s *Store) optionsOf(server *redis.Client) []*redis.Options {
	if server != nil {
		return []*redis.Options{server.Options()}
	}
	c, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	var list []*redis.Options
	for _, addr := range c.Options().Addrs {
		o := &redis.Options{Network: "tcp", Addr: addr, Dialer: c.Options().Dialer, TLSConfig: c.Options().TLSConfig, DialTimeout: c.Options().DialTimeout}
		if o.Dialer == nil {
			o.Dialer = redis.NewDialer(o)
		}
		list = append(list, o)
	}
	return list
}

// dialOneOf returns nil if a server can be dialled, or why none can.
func (s *Store) dialOneOf(ctx context.Context, list []*redis.Options) (err error) {
	for _, o := range list {
		if err = dial(ctx, o); err == nil {
			return nil
		}
	}
	return err
}

// serverOf returns the client of the server that has the key, and its address. They are nil
// and empty while a Cluster has no table: the client would ask for one now.
func (s *Store) serverOf(key string) (server *redis.Client, addr string) {
	_ = rediscall.Safely(context.Background(), func(ctx context.Context) (err error) {
		switch c := s.client.(type) {
		case *redis.Client:
			server = c
		case *redis.ClusterClient:
			if s.mapped.Load() {
				server, err = c.MasterForKey(ctx, key)
			}
		case *redis.Ring:
			server, err = c.GetShardClientForKey(key)
		}
		return err
	})
	if server == nil {
		return nil, ""
	}
	return server, server.Options().Addr
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

// isTLS reports whether the two ends of a connection do not agree on TLS, or one does not
// trust the certificate of the other.
func isTLS(err error) bool {
	var untrusted *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var alert tls.AlertError
	return errors.As(err, &untrusted) || errors.As(err, &header) || errors.As(err, &alert)
}

// dial returns why no connection can be made, or nil.
func dial(ctx context.Context, o *redis.Options) error {
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
	return s.dials.single && errors.Is(err, syscall.ECONNREFUSED)
}
