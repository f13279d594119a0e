// This file sends script calls to the server.

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/lua"
)

// link sends calls of scripts to the servers.
type link struct {
	client redis.UniversalClient
	prefix string
	send   func(context.Context, redis.Cmder) error // has the client send, and returns at the deadline

	topology  *topology
	servers   *servers
	connector *connector

	ran          sync.Map    // the SHA-1 of the scripts that have run, by *lua.Script
	noHeaderLine atomic.Bool // a server does not know the first line of scripts
}

// newCommand returns the call of a script: by its SHA-1 if that is not nil, because the server
// knows it, and else with its text.
func newCommand(ctx context.Context, script *lua.Script, sha1 any, args []any) rediscall.Ints {
	if sha1 != nil {
		args[0], args[1] = "evalsha", sha1
	} else {
		args[0], args[1] = "eval", script.Text
	}
	c := rediscall.Ints{IntSliceCmd: redis.NewIntSliceCmd(ctx, args...)}
	c.SetFirstKeyPos(3)
	return c
}

// run calls the script. It sends the text of a script that has not run yet, and its SHA-1 later,
// and omits the first line once a server has refused that line. args has room in front for the
// command's name and the script.
func (l *link) run(ctx context.Context, v *server, script *lua.Script, args []any) ([]int64, error) {
	if script.Plain != nil && l.noHeaderLine.Load() {
		script = script.Plain
	}

	sha1, ran := l.ran.Load(script)
	cmd := newCommand(ctx, script, sha1, args)

	if err := l.process(ctx, v, cmd); err != nil {
		return l.runAgain(ctx, v, script, args, err)
	}
	if !ran {
		l.ran.Store(script, script.SHA1)
	}
	return cmd.Val(), nil
}

// runAgain calls the script once more if the error says that the server does not know it, or does
// not understand its first line. Other errors it returns.
func (l *link) runAgain(ctx context.Context, v *server, script *lua.Script, args []any, err error) ([]int64, error) {
	// A server that does not know this script has been restarted, and knows none. It gets the text
	// in another round trip, and so does each of the others once more.
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		l.ran.Clear()
		cmd := newCommand(ctx, script, nil, args)
		if err = l.process(ctx, v, cmd); err == nil {
			l.ran.Store(script, script.SHA1)
			return cmd.Val(), nil
		}
	}

	if script.Plain != nil && refusesFlags(err) {
		l.noHeaderLine.Store(true)
		return l.run(ctx, v, script.Plain, args)
	}
	return nil, l.explain(err)
}

// refusesFlags reports whether the error is that of a server before Redis 7,
// which does not understand the first line of a script.
func refusesFlags(err error) bool {
	return redis.HasErrorPrefix(err, "Error compiling script")
}

// within returns a context that ends at the deadline, or with ctx.
func (l *link) within(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	if foreignOf(l.client) == nil { // go-redis asks each context for its channel
		return context.WithDeadline(ctx, deadline)
	}
	d := &deadlineContext{Context: ctx, end: deadline}
	return d, d.cancel
}

// process sends the command to the server.
func (l *link) process(ctx context.Context, v *server, cmd rediscall.Ints) error {
	begun, ended, err := l.ask(ctx, v, cmd)

	// The error may be that of a server which has the keys no longer.
	l.topology.reloadIfMoved(ctx, err)
	if err == nil {
		return nil
	}

	if !isLate(err) {
		return l.connector.causeOf(cmd, err)
	}

	l.servers.measure(v, firstKey(cmd))

	late := &lateCall{at: ended}
	var read *lateRead
	if errors.As(err, &read) {
		late.conn = read.conn
	}

	// A call that began with little time left says nothing about the server, as long as others are
	// answered.
	end, _ := ctx.Deadline()
	hurried := end.Sub(begun) < v.budget()/2 && !v.isSilent(ended)
	if hurried || l.servers.noticedLate(ctx, v, ended, err) {
		// The client may have dropped the connection of the call.
		l.connector.connect(l.connector.connections(), nil)
		late.err = l.connector.explainLate(err)
	} else {
		late.err = l.connector.causeOf(cmd, err)
	}
	return late
}

// ask sends the command, and records for how long the server was silent.
func (l *link) ask(ctx context.Context, v *server, cmd rediscall.Ints) (begun, ended time.Time, err error) {
	replied := false
	begun = time.Now()
	v.callBegins(begun)
	defer func() { // a hook of the client may panic
		if ended = time.Now(); replied {
			v.heard(ended.Sub(begun), ended)
		} else {
			v.unheard(ended, lateness(err))
		}
	}()
	if l.connector.dials.trust.Load() != trusted {
		err = l.sendChecked(ctx, cmd)
	} else {
		err = l.send(ctx, cmd)
	}
	replied = isReply(err)
	return begun, ended, err
}

// sendInBackground has the client, which ignores the context's deadline, send the command in a
// goroutine, which the client's own timeouts end. There a panic of the client, such as one of its
// hooks, is an error, as it would end the process.
func (l *link) sendInBackground(ctx context.Context, cmd redis.Cmder) error {
	done := make(chan error, 1)
	go func() {
		reserveStack()
		done <- rediscall.Safely(ctx, func(ctx context.Context) error { return l.client.Process(ctx, cmd) })
	}()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	return l.awaitLate(ctx, done)
}

// reserveStack has the stack of a goroutine, which is new, grow while it is empty. A call of the
// client needs more than a goroutine begins with, and to move the frames of a call that is under
// way takes a third of the instructions of a decision.
//
//go:noinline
func reserveStack() {
	var frame [4 << 10]byte
	runtime.KeepAlive(&frame)
}

// awaitLate returns the result of a client that ignores deadlines when ctx has ended, which
// the process may have noticed late. Then the client has as long again.
func (l *link) awaitLate(ctx context.Context, done chan error) error {
	var late time.Duration
	if end, ok := ctx.Deadline(); ok && ctx.Err() == context.DeadlineExceeded {
		late = time.Since(end)
	}

	if late <= onTime {
		select {
		case err := <-done:
			return err
		default:
			return ctx.Err()
		}
	}

	timer := time.NewTimer(min(late, l.servers.budget()))
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return &lateRead{err: ctx.Err(), late: late + min(late, l.servers.budget())}
	}
}

// sleep waits for d and reports whether ctx has not ended. If the deadline of ctx
// comes first, it returns false at once.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}

	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// sendChecked sends the command as send does: for the first time with a dial beside,
// and later only if the door to the server is not shut.
func (l *link) sendChecked(ctx context.Context, cmd rediscall.Ints) error {
	if l.connector.dials.trust.Load() == untried {
		return l.sendFirst(ctx, cmd)
	}

	key := firstKey(cmd)
	if err := l.connector.pass(ctx, key); err != nil {
		return err
	}

	err := l.send(ctx, cmd)

	// Any answer opens the door, but for one that lets no client in.
	var reply redis.Error
	if err == nil || errors.As(err, &reply) && !unwelcome(err) {
		l.connector.relieve(key)
	}
	return err
}

// sendFirst sends a command of a client that was not used before, and dials beside it.
func (l *link) sendFirst(ctx context.Context, cmd rediscall.Ints) error {
	client, _ := l.client.(*redis.Client)

	// The client has connected already, so there is nothing to find out.
	if client.PoolStats().TotalConns > 0 {
		return l.connector.trustIfAnswered(l.send(ctx, cmd))
	}

	listening, end := context.WithCancel(ctx)
	defer end()
	found := make(chan error, 1)
	go func() { found <- l.connector.dialBeside(listening, client, l.servers.reach(), func(error) {}) }()

	// The dial beside finds out what the client hides behind the end of its deadline.
	err := l.connector.trustIfAnswered(l.send(ctx, cmd))

	if !hidesCause(err) && !broken(err) {
		return err
	}

	var said unasked
	select {
	case cause := <-found:
		if errors.As(cause, &said) {
			return &turnedAway{said, err}
		}

		if !hidesCause(err) {
			return err
		}
		if cause != nil {
			return &dialError{cause}
		}
	default:
	}
	return err
}

// explain adds ErrCredentials, ErrPermission or ErrTooManyClients to an error that only an
// administrator of the server can mend.
func (l *link) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case redis.IsAuthError(err):
		return fmt.Errorf("%w: %w", ErrCredentials, err)
	case redis.HasErrorPrefix(err, tooManyClients), errors.Is(err, ErrTooManyClients):
		return fmt.Errorf("%w: %w", ErrTooManyClients, err)
	case rediscall.Forbids(err):
		return fmt.Errorf("%w: %w; %s", ErrPermission, err, rediscall.Remedy(l.client, l.prefix))
	}
	return err
}
