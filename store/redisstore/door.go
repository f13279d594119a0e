// This file keeps calls from a server that is known not to answer.

package redisstore

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
)

// A door is between the calls of a store and the client's connections to one server.
//
//	           a call has no answer
//	open ──────────────────────────────▶ doubted: a trial begins
//	 ▲ ▲                                  │     │ a connection broke, none is left,
//	 │ └───── a call is answered ─────────┘     │ or maxLate calls in turn were late
//	 │                                          ▼
//	 └── a trial or a call is answered ──────  shut: calls begin trials, and wait for
//	                                           the first or fail at once
//
// A trial dials the server beside the client, and has the client connect if that succeeds. By
// itself the client dials for each call, and drops the connection if the call is late, so a
// server that hangs would meet as many connections as calls. And once the client has failed
// to dial PoolSize times, it dials no more than once a second.
type door struct {
	server *redis.Client // nil while it is not known which server that is
	addr   string        // of the server
	asked  time.Time     // when the last call asked for the door

	doubted bool      // a call or a trial had no answer, and none was answered since
	late    int       // how many calls were late since the last one that was answered
	why     error     // why calls are not made; nil unless the door is shut
	failed  bool      // a trial has failed since the door was shut
	trial   *trialRun // the trial in progress, or nil
	due     time.Time // when the next trial may begin while the door is not shut
	urgent  time.Time // when the next trial may begin while the door is shut
}

// trialRun is a trial in progress.
type trialRun struct {
	dialled chan struct{} // closed once the server was
	found   error         // why it cannot be dialled, or nil; may be read once dialled is closed
	ended   chan struct{} // closed once the trial has ended
}

// doors are the doors to the servers that were ever doubted. All others are open.
type doors struct {
	mu sync.Mutex
	to map[string]*door // by address; guarded by mu, and so are the doors
}

const (
	// maxLate is how many calls in turn may be late before the door is shut.
	maxLate = 4

	// redial is the minimum pause between two trials of a server that cannot be dialled.
	redial = 50 * time.Millisecond

	// forgotten is how long a door stays that no call has asked for: a Cluster may have
	// replaced its server.
	forgotten = time.Minute
)

// shutError is why a call was not made.
type shutError struct{ err error }

func (e *shutError) Error() string { return e.err.Error() }

// Unwrap returns why the calls before failed.
func (e *shutError) Unwrap() error { return e.err }

// Unsent returns true.
func (e *shutError) Unsent() bool { return true }

// silentError is why calls are not made to a server that has not answered others.
type silentError struct{ err error }

func (e *silentError) Error() string { return "no answer in time: " + e.err.Error() }

// Unwrap returns the error of a call before, and that the server is silent.
func (e *silentError) Unwrap() []error { return []error{e.err, core.ErrSilent} }

// unreachable is why a server cannot be dialled. Unlike a dialError it proves that the call
// was not made.
type unreachable struct{ err error }

func (u *unreachable) Error() string { return "no connection: " + u.err.Error() }

// Unwrap returns the error of the dial.
func (u *unreachable) Unwrap() error { return u.err }

// unwelcome reports whether the server answers, but lets no new connection in.
func unwelcome(err error) bool {
	return redis.IsAuthError(err) || redis.HasErrorPrefix(err, "max number of clients")
}

// broken reports whether the client lost a connection, or got none for another reason than
// the time.
func broken(err error) bool {
	var network net.Error
	return !isLate(err) && errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		isTLS(err) || unwelcome(err)
}

// reasonOf returns the error of calls that are not made, after one that failed with err.
func reasonOf(err error) error {
	var beside *dialError
	var network *net.OpError
	switch {
	case errors.As(err, &beside):
		return &unreachable{beside.err}
	case isLate(err):
		return &lateError{err}
	case errors.As(err, &network) && network.Op == "dial", isTLS(err):
		return &unreachable{err}
	}
	return err
}

// pass returns nil once the server that has the key may be asked, or why it may not.
func (c *connector) pass(ctx context.Context, key string) error {
	server, addr := c.topology.serverOf(key)
	run, err := c.knock(server, addr)
	if run == nil {
		return err
	}

	select {
	case <-run.dialled:
	case <-ctx.Done():
	}

	// A server that cannot be dialled needs no wait for the end of the trial.
	if run.cause() != nil {
		return c.doors.shut(addr)
	}
	select {
	case <-run.ended:
		return c.doors.shut(addr)
	case <-ctx.Done():
	}

	if errors.Is(ctx.Err(), context.Canceled) {
		return unsent(ctx.Err())
	}
	return cmp.Or(c.doors.shut(addr), error(&shutError{&lateError{ctx.Err()}}))
}

// knock returns the trial for which a call has to wait, or why it is not made. Both are nil
// if the door is not shut.
func (c *connector) knock(server *redis.Client, addr string) (*trialRun, error) {
	c.doors.mu.Lock()
	defer c.doors.mu.Unlock()

	d, now := c.doors.to[addr], time.Now()
	if d == nil {
		return nil, nil
	}

	d.server, d.asked = server, now
	if d.why == nil {
		return nil, nil
	}

	// The first trial since the door was shut may end soon and well, so calls wait for it. After
	// one that failed they do not.
	if c.tryLocked(d, now) || !d.failed && d.trial != nil {
		return d.trial, nil
	}
	return nil, &shutError{d.why}
}

// shut returns why calls are not made, or nil.
func (d *doors) shut(addr string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if door := d.to[addr]; door != nil && door.why != nil {
		return &shutError{door.why}
	}
	return nil
}

// known returns why a server cannot be dialled, or nil.
func (d *doors) known() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, each := range d.to {
		var dead *unreachable
		if errors.As(each.why, &dead) {
			return dead
		}
	}
	return nil
}

// doubt records that a call about the key has failed with err. It returns the trial in progress,
// or nil, and whether this call has begun it.
func (c *connector) doubt(key string, err error) (run *trialRun, began bool) {
	server, addr := c.topology.serverOf(key)
	c.doors.mu.Lock()
	defer c.doors.mu.Unlock()

	now := time.Now()

	d := c.doors.to[addr]
	if d == nil {
		c.forgetLocked(now)
		d = &door{addr: addr}
		c.doors.to[addr] = d
	}

	d.server, d.asked, d.doubted = server, now, true
	c.dials.trust.Store(mistaken)

	if isLate(err) {
		d.late++
	}

	// One late call proves little while there are connections. A broken connection does, and so do
	// several late calls.
	if d.why == nil && (broken(err) || isLate(err) && (d.late >= maxLate || !d.connected(c.client))) {
		d.why = reasonOf(err)
	}

	began = c.tryLocked(d, now)
	return d.trial, began
}

// connected reports whether the client has connections to the server, as far as that is known.
func (d *door) connected(client redis.UniversalClient) bool {
	return foreignOf(client) != nil || d.server != nil && d.server.PoolStats().TotalConns > 0
}

// relieve records that a call about the key was answered.
func (c *connector) relieve(key string) {
	_, addr := c.topology.serverOf(key)
	c.doors.mu.Lock()
	defer c.doors.mu.Unlock()
	if d := c.doors.to[addr]; d != nil {
		d.open()
	}
	c.settleLocked(time.Now())
}

func (d *door) open() { d.doubted, d.late, d.why, d.failed = false, 0, nil, false }

// settleLocked trusts the client again if no door is doubted that calls ask for. The caller
// holds the mutex of the doors.
func (c *connector) settleLocked(now time.Time) {
	for _, d := range c.doors.to {
		if d.doubted && now.Sub(d.asked) < forgotten {
			return
		}
	}
	c.dials.trust.Store(trusted)
}

// forgetLocked forgets doors that no call asks for. The caller holds the mutex of the doors.
func (c *connector) forgetLocked(now time.Time) {
	for addr, d := range c.doors.to {
		if d.trial == nil && now.Sub(d.asked) >= forgotten {
			delete(c.doors.to, addr)
		}
	}
}

// tryLocked begins a trial unless one is in progress or was a moment ago, and reports whether
// it has. The caller holds the mutex of the doors.
func (c *connector) tryLocked(d *door, now time.Time) bool {
	due := d.due
	if d.why != nil {
		due = d.urgent
	}
	if d.trial != nil || now.Before(due) {
		return false
	}

	d.trial = &trialRun{dialled: make(chan struct{}), ended: make(chan struct{})}
	go c.try(d, d.trial, d.server, d.failed)
	return true
}

// try tries whether the server answers. It makes as many connections as calls need; again,
// after a trial that failed, it begins with one.
func (c *connector) try(d *door, run *trialRun, server *redis.Client, again bool) {
	begun, n := time.Now(), c.connections()

	// recordDial keeps the error. There is no time to hear what the server says.
	const hear = 0
	_ = c.dialBeside(context.Background(), server, hear, func(err error) { c.recordDial(d, run, err) })

	var why error
	switch {
	case run.found != nil:
		why = whyUndialled(run.found)
		if c.dials.mayUseClient(begun) && c.greet(server, d.addr, 1) == nil {
			why = nil
		}
	case again:
		if why = silentOr(c.greet(server, d.addr, 1), reasonOf); why == nil {
			_ = c.greet(server, d.addr, n) // one connection is enough to go on
		}
	default:
		why = silentOr(c.greet(server, d.addr, n), reasonOf)
	}

	if run.found == nil && why != nil && broken(why) && !unwelcome(why) {
		// The server may have said why before it closed the connection.
		if said := c.dialBeside(context.Background(), server, c.servers.reach(), func(error) {}); unwelcome(said) {
			why = said
		}
	}

	c.endTrial(d, run, begun, why)

	// Calls need as many connections to the other servers as the trial has made to this one.
	if why == nil && !again && !c.dials.single {
		c.connect(n, server)
	}
}

// whyUndialled returns the error of calls to a server that cannot be dialled.
func whyUndialled(err error) error {
	return silentOr(err, func(err error) error { return &unreachable{err} })
}

// recordDial records how the dial of a trial ended. If the server cannot be dialled, calls at a
// door that is shut fail at once.
func (c *connector) recordDial(d *door, run *trialRun, err error) {
	c.doors.mu.Lock()
	defer c.doors.mu.Unlock()

	run.found = err
	if d.why != nil && err != nil {
		d.why, d.failed = whyUndialled(err), true
	}

	// It is closed last, because who waits for it reads what was found.
	close(run.dialled)
}

// silentOr returns the error of calls that are not made after a trial that failed with err, as
// reason does if it was not late.
func silentOr(err error, reason func(error) error) error {
	switch {
	case err == nil:
		return nil
	case isLate(err):
		return &silentError{err}
	}
	return reason(err)
}

// endTrial opens the door, or shuts it.
func (c *connector) endTrial(d *door, run *trialRun, begun time.Time, why error) {
	c.doors.mu.Lock()
	defer c.doors.mu.Unlock()

	now, late := time.Now(), why != nil && isLate(why)
	d.trial = nil
	close(run.ended)

	d.urgent = now.Add(reconnect)
	d.due = d.urgent

	var dead *unreachable
	switch {
	case why == nil:
		// A trial that was as quick as a call found its connections ready, so the next has time.
		if now.Sub(begun) <= c.servers.budget() {
			d.due = now.Add(max(reconnect, connectTimeouts*c.servers.budget()))
		}
		d.open()
		c.settleLocked(now)
	case late && !d.doubted: // calls were answered in the meantime
	default:
		d.doubted, d.why, d.failed = true, why, true
		if !late && errors.As(why, &dead) {
			d.urgent = now.Add(redial)
		}
		c.dials.trust.Store(mistaken)
	}
}

// greet has the client connect to the server with the address, or to all of them if neither is
// known. It returns nil if one connection is ready, of the n that calls need.
func (c *connector) greet(server *redis.Client, addr string, n int) error {
	if c.ignoresDeadline {
		return nil // the client keeps the connections that it makes
	}

	ctx, cancel := context.WithTimeout(context.Background(), connectTimeouts*c.servers.reach())
	defer cancel()
	return rediscall.Safely(ctx, func(ctx context.Context) error {
		own := foreignOf(c.client)
		if server == nil && own == nil {
			return c.connectServers(ctx, n, nil)
		}

		ready, err := 0, error(nil)
		if own != nil {
			ready, err = own.Connect(ctx, addr, n)
		} else {
			ready, err = connectOne(ctx, server, n)
		}

		if ready == n {
			c.prepared(n)
		}

		// Calls can go on with one connection. The client makes the others for them.
		if ready > 0 {
			return nil
		}
		return err
	})
}
