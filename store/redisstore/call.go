package redisstore

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/headgate/headgate/lua"
	"github.com/redis/go-redis/v9"
)

// command is a script call that the client sends at most once. A client that
// repeats a script whose reply was late counts one request several times.
type command struct{ *redis.IntSliceCmd }

// NoRetry overrides the client's own retries; see redis.Cmder.
func (command) NoRetry() bool { return true }

func newCommand(ctx context.Context, name, script string, args []any) command {
	args[0], args[1] = name, script
	c := command{redis.NewIntSliceCmd(ctx, args...)}
	c.SetFirstKeyPos(3)
	return c
}

// run calls the script. args has room for the command's name and the script in
// front. It tries again only after errors which prove that nothing ran, until
// the context ends.
func (s *Store) run(ctx context.Context, script *lua.Script, args []any) ([]int64, error) {
	name, text := "evalsha", script.SHA1
	for pause := time.Millisecond; ; pause *= 2 {
		cmd := newCommand(ctx, name, text, args)
		err := s.process(ctx, cmd)
		switch {
		case err == nil:
			return cmd.Val(), nil
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			name, text = "eval", script.Text
			continue
		case !neverRan(err) || !sleep(ctx, pause):
			return nil, err
		}
	}
}

// process sends the command. A client that ignores the context's deadline is
// left to finish by itself: its own timeouts end the goroutine.
func (s *Store) process(ctx context.Context, cmd command) error {
	if s.heedsDeadline {
		return s.client.Process(ctx, cmd)
	}
	done := make(chan error, 1)
	go func() { done <- s.client.Process(ctx, cmd) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// neverRan tells whether the error proves that the script was not executed.
func neverRan(err error) bool {
	for _, prefix := range []string{
		"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS", "BUSY",
		"max number of clients reached",
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	var dial *net.OpError
	return errors.Is(err, redis.ErrPoolTimeout) || errors.As(err, &dial) && dial.Op == "dial"
}

// sleep waits unless the context would end before, and tells whether it did.
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
