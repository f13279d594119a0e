// This file learns why the client has no connection.

package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
)

// maxDials is how many dials of a store may be in progress.
const maxDials = 8

// dialCheck dials beside a client that has no connection. By itself the client dials five
// times, 100 ms apart, and answers with the end of the caller's deadline, whatever kept it
// from connecting. The check finds the true cause.
//
// It never ends a call unless it has reached the server itself before: a hook of the
// client may dial in another way, or answer without a server.
//
//	          the first call is answered              a call has no answer
//	untried ------------------------------> trusted ----------------------> mistaken
//	   |                                       ^                              |   ^
//	   |                                       +--- no door is doubted -------+   |
//	   +--- the first call has no answer -----------------------------------------+
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

// init makes the check ready for use.
func (d *dialCheck) init(client redis.UniversalClient) {
	d.slots = make(chan struct{}, maxDials)
	if _, d.single = client.(*redis.Client); d.single {
		d.trust.Store(untried)
	}

	// A client that is not one of go-redis's dials once, and says itself why it has no connection.
	if own := foreignOf(client); own != nil {
		d.single = own.Kind() == kindStandalone
	}
}

// mayUseClient reports whether the client may be used although the server cannot be dialled:
// once in a while, unless it could be before.
func (d *dialCheck) mayUseClient(now time.Time) bool {
	at, last := now.UnixMilli(), d.used.Load()
	return !d.proven.Load() && at-last >= useAgain.Milliseconds() && d.used.CompareAndSwap(last, at)
}

// trustIfAnswered trusts the client if its first call, which ended with err, was answered. It
// returns err.
func (c *connector) trustIfAnswered(err error) error {
	var reply redis.Error
	if err == nil || errors.As(err, &reply) && !unwelcome(err) {
		c.dials.trust.CompareAndSwap(untried, trusted)
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
func (c *connector) causeOf(cmd rediscall.Ints, err error) error {
	// The call was not made, or this process had no time for it: neither says anything new about
	// the server.
	var shut *shutError
	if errors.As(err, &shut) || errors.Is(err, core.ErrOverload) {
		return err
	}

	if !isLate(err) && !broken(err) && !errors.Is(err, context.Canceled) {
		return err
	}

	// Only the call that begins the trial waits for it: a moment later the others know the cause.
	run, began := c.doubt(firstKey(cmd), err)
	if run != nil && began && isLate(err) {
		run.await(maxWaitForCause)
	}

	var beside *dialError
	var turned *turnedAway
	if !isLate(err) || errors.As(err, &beside) || errors.As(err, &turned) {
		return err
	}

	if cause := run.cause(); cause != nil {
		return &dialError{cause}
	}
	return c.explainLate(err)
}

// await waits for at most d until the server was dialled.
func (t *trialRun) await(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.dialled:
	case <-timer.C:
	}
}

// cause returns why the server cannot be dialled, or nil if that is not known.
func (t *trialRun) cause() error {
	if t == nil {
		return nil
	}
	select {
	case <-t.dialled:
		return t.found
	default:
		return nil
	}
}

// explainLate returns an error that says why a call or a step was late, or err.
func (c *connector) explainLate(err error) error {
	if !isLate(err) {
		return err
	}
	if c.dials.trust.Load() == mistaken {
		if known := c.doors.known(); known != nil {
			return known
		}
	}
	return &lateError{err}
}

// unasked is an error that a server says to a connection before it was asked, and then closes
// it: it has too many, or is in its protected mode. The client may only see the end.
type unasked string

func (u unasked) Error() string { return string(u) }

// RedisError marks a reply; see [redis.Error].
func (unasked) RedisError() {}

// turnedAway is why a call failed whose connection the server may have closed. The call may
// have reached the server before.
type turnedAway struct {
	said unasked
	err  error // of the client
}

func (t *turnedAway) Error() string { return fmt.Sprintf("%v: %v", t.said, t.err) }

// Unwrap returns the error of the client, and ErrTooManyClients if that is what the server says.
func (t *turnedAway) Unwrap() []error {
	if redis.HasErrorPrefix(t.said, tooManyClients) {
		return []error{t.err, ErrTooManyClients}
	}
	return []error{t.err}
}

// listen returns what the server says without being asked within d, or nil. A server that is
// well says nothing.
func listen(conn net.Conn, d time.Duration) error {
	if d == 0 || conn.SetReadDeadline(time.Now().Add(d)) != nil {
		return nil
	}

	text := make([]byte, 512)
	n, _ := conn.Read(text)
	line, _, _ := strings.Cut(string(text[:n]), "\r\n")
	if said, ok := strings.CutPrefix(line, "-"); ok {
		return unasked(said)
	}
	return nil
}

// errNoServer means that the client knows no server.
var errNoServer = errors.New("the client knows no server")

// errDialling means that too many dials of a store are in progress.
var errDialling = fmt.Errorf("%d dials are in progress: %w", maxDials, context.DeadlineExceeded)

// dialBeside calls dialled with why the server cannot be dialled, or nil, and returns that, or
// what the server says in the time to hear, or until ctx ends. A dialler may go on after its
// deadline, as that of the client does over TLS; dialBeside does not.
func (c *connector) dialBeside(ctx context.Context, server *redis.Client, hear time.Duration,
	dialled func(error)) error {

	// A client that is not one of go-redis's says itself why it cannot dial.
	if foreignOf(c.client) != nil {
		dialled(nil)
		return nil
	}

	listening := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeouts*c.servers.reach())
	defer cancel()

	// A slot is held until its dial has ended, also where that is after the deadline.
	conns, errs := make(chan net.Conn, 1), make(chan error, 1)

	select {
	case c.dials.slots <- struct{}{}:
		go func() {
			defer func() { <-c.dials.slots }()
			conn, err := dialOneOf(ctx, optionsOf(c.client, server))
			if err != nil {
				errs <- err
				return
			}
			c.dials.proven.Store(true)
			conns <- conn
		}()
	default:
		errs <- errDialling
	}

	var err error
	select {
	case conn := <-conns:
		defer conn.Close()
		defer context.AfterFunc(listening, func() { _ = conn.Close() })()
		dialled(nil)
		return listen(conn, hear)
	case err = <-errs:
	case <-ctx.Done():
		err = ctx.Err()
		go closeLate(conns, errs)
	}
	dialled(err)
	return err
}

// closeLate closes a connection that nothing waits for.
func closeLate(conns chan net.Conn, errs chan error) {
	select {
	case conn := <-conns:
		_ = conn.Close()
	case <-errs:
	}
}

// optionsOf returns how the server is dialled, or how all are of which the client knows.
func optionsOf(client redis.UniversalClient, server *redis.Client) []*redis.Options {
	if server != nil {
		return []*redis.Options{server.Options()}
	}
	c, ok := client.(*redis.ClusterClient)
	if !ok {
		return nil
	}

	var list []*redis.Options
	for all, i := c.Options(), 0; i < len(all.Addrs); i++ {
		o := &redis.Options{
			Network: "tcp", Addr: all.Addrs[i], Dialer: all.Dialer,
			TLSConfig: all.TLSConfig, DialTimeout: all.DialTimeout,
		}
		if o.Dialer == nil {
			o.Dialer = redis.NewDialer(o)
		}
		list = append(list, o)
	}
	return list
}

// dialOneOf returns a connection to a server that can be dialled, or why none can.
func dialOneOf(ctx context.Context, list []*redis.Options) (conn net.Conn, err error) {
	for _, o := range list {
		err = rediscall.Safely(ctx, func(ctx context.Context) (err error) {
			conn, err = o.Dialer(ctx, o.Network, o.Addr)
			return err
		})

		if err == nil {
			return conn, nil
		}
	}

	return nil, cmp.Or(err, errNoServer)
}

// firstKey returns the first key of a script call.
func firstKey(cmd rediscall.Ints) string {
	if args := cmd.Args(); len(args) > 3 {
		return fmt.Sprint(args[3])
	}
	return ""
}

// refused reports whether the server is not there to be asked again. The client of
// a Cluster may find another one.
func (c *connector) refused(err error) bool {
	return c.dials.single && errors.Is(err, syscall.ECONNREFUSED)
}
