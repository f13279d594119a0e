// This file sends script calls to the server.

package redisstore

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/lua"
)

func newCommand(ctx context.Context, name, script string, args []any) rediscall.Ints {
	args[0], args[1] = name, script
	c := rediscall.Ints{IntSliceCmd: redis.NewIntSliceCmd(ctx, args...)}
	c.SetFirstKeyPos(3)
	return c
}

// run calls the script. It omits the first line once a server has refused that
// line. args has room in front for the command's name and the script.
func (s *Store) run(ctx context.Context, v *server, script *lua.Script, args []any) ([]int64, error) {
	if script.Plain != nil && s.plain.Load() {
		script = script.Plain
	}
	ints, err := s.runText(ctx, v, script, args)
	if err != nil && script.Plain != nil && refusesFlags(err) {
		s.plain.Store(true)
		return s.runText(ctx, v, script.Plain, args)
	}
	return ints, err
}

// refusesFlags reports whether the error is that of a server before Redis 7,
// which does not understand the first line of a script.
func refusesFlags(err error) bool {
	return redis.HasErrorPrefix(err, "Error compiling script")
}

// runText sends the text of a script that has not run yet, and its SHA-1 later. A server
// that does not know a script says so after a round trip and gets the text in another;
// it may know none, so that each of the others is sent as text once more.
func (s *Store) runText(ctx context.Context, v *server, script *lua.Script, args []any) ([]int64, error) {
	name, text := "evalsha", script.SHA1
	_, ran := s.ran.Load(script)
	if !ran {
		name, text = "eval", script.Text
	}
	cmd := newCommand(ctx, name, text, args)
	err := s.process(ctx, v, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		s.ran.Clear()
		ran = false
		cmd = newCommand(ctx, "eval", script.Text, args)
		err = s.process(ctx, v, cmd)
	}
	if err != nil {
		return nil, s.explain(err)
	}
	if !ran {
		s.ran.Store(script, nil)
	}
	return cmd.Val(), nil
}

// process sends the command to the server.
func (s *Store) process(ctx context.Context, v *server, cmd rediscall.Ints) error {
	begun, ended, err := s.ask(ctx, v, cmd)
	s.learn(ctx, err)
	if err == nil {
		return nil
	}

	if !isLate(err) {
		return s.causeOf(cmd, err)
	}

	s.measure(v, firstKey(cmd))
	end, _ := ctx.Deadline()
	hurried := end.Sub(begun) < v.budget()/2 && !v.isSilent(ended)
	if hurried || s.noticedLate(ctx, v, ended, err) {
		// That says nothing about the server, and the connection may be lost.
		s.connect(s.connections(), nil)
		err = s.explainLate(err)
	} else {
		err = s.causeOf(cmd, err)
	}
	return &lateCall{err, ended}
}

// ask sends the command, and notes for how long the server was silent.
func (s *Store) ask(ctx context.Context, v *server, cmd rediscall.Ints) (begun, ended time.Time, err error) {
	replied := false
	begun = time.Now()
	v.begin(begun)
	defer func() { // a hook of the client may panic
		if ended = time.Now(); replied {
			v.heard(ended.Sub(begun), ended)
		} else {
			v.unheard(ended, lateness(err))
		}
	}()
	if s.dials.trust.Load() != trusted {
		err = s.sendChecked(ctx, cmd)
	} else {
		err = s.sendCommand(ctx, cmd)
	}
	replied = isReply(err)
	return begun, ended, err
}

// sendCommand has the client send the command. A client that ignores the
// context's deadline runs in a goroutine, which its own timeouts end. There a panic of
// the client, such as one of its hooks, is an error, as it would end the process.
func (s *Store) sendCommand(ctx context.Context, cmd rediscall.Ints) error {
	if s.heedsDeadline {
		return s.client.Process(ctx, cmd)
	}
	done := make(chan error, 1)
	go func() {
		done <- rediscall.Safely(ctx, func(ctx context.Context) error { return s.client.Process(ctx, cmd) })
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	return s.awaitLate(ctx, done)
}

// awaitLate returns the result of a client that ignores deadlines when ctx has ended, which
// the process may have noticed late. Then the client has as long again.
func (s *Store) awaitLate(ctx context.Context, done chan error) error {
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
	timer := time.NewTimer(min(late, s.budget()))
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return &lateRead{err: ctx.Err(), late: late + min(late, s.budget())}
	}
}

// neverRan reports whether the error proves that the script was not executed.
func neverRan(err error) bool {
	for _, prefix := range []string{
		"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS", "BUSY",
		"max number of clients reached",
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	var beside *dialError
	if errors.As(err, &beside) {
		return false
	}
	var dial *net.OpError
	return errors.Is(err, redis.ErrPoolTimeout) || errors.As(err, &dial) && dial.Op == "dial"
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
