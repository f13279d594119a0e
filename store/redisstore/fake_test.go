package redisstore

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
)

// fake answers script calls in place of a server. Every step is of one plain
// Take, and the n-th of all is allowed with n remaining.
type fake struct {
	t testing.TB

	// wait, if set, is called before call n of all is answered. If it returns an
	// error, that is the answer.
	wait func(ctx context.Context, n int) error

	// connect, if set, is called before a command that has the client connect is answered.
	connect func(context.Context) error

	mu       sync.Mutex
	calls    [][]string // the keys of each call
	said     int64
	connects int // commands that have the client connect
}

// faked returns a store whose client reaches a fake.
func faked(t testing.TB, f *fake, o Options) *Store {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, Dialer: f.dial})
	t.Cleanup(func() { c.Close() })
	f.t = t
	c.AddHook(f)
	return MustNew(c, o)
}

// dial returns a connection for the check of a dial, which only closes it.
func (f *fake) dial(context.Context, string, string) (net.Conn, error) {
	c, _ := net.Pipe()
	return c, nil
}

func (f *fake) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("a fake has no network")
	}
}

func (f *fake) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f *fake) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "time" {
			return f.connected(ctx)
		}

		keys := keysOfCall(cmd)
		f.mu.Lock()
		f.calls = append(f.calls, keys)
		n := len(f.calls)
		f.mu.Unlock()

		// The call takes the time that the test wants, and may fail in it.
		if f.wait != nil {
			if err := f.wait(ctx, n); err != nil {
				cmd.SetErr(err)
				return err
			}
		}

		f.mu.Lock()
		defer f.mu.Unlock()

		// Each step is allowed, with one more unit than the step before: no two answers are alike.
		reply := []int64{7}
		for range keys {
			f.said++
			reply = append(reply, f.said, 4*5+saysAllowed)
		}

		cmd.(rediscall.Ints).SetVal(reply)
		return nil
	}
}

func (f *fake) connected(ctx context.Context) error {
	f.mu.Lock()
	f.connects++
	f.mu.Unlock()
	if f.connect == nil {
		return nil
	}
	return f.connect(ctx)
}

// keysOfCall returns the keys of a script call without what is around them.
func keysOfCall(cmd redis.Cmder) []string {
	args := cmd.Args()
	var keys []string
	for _, arg := range args[leadingArgs : leadingArgs+args[2].(int)] {
		key := arg.(string)
		keys = append(keys, key[len("hg:{"):len(key)-len("}:r:g")])
	}
	return keys
}

// seen returns the keys of the calls until now, in order of the keys: two calls
// may go out at the same time.
func (f *fake) seen() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := slices.Clone(f.calls)
	for _, keys := range calls {
		slices.Sort(keys)
	}
	slices.SortFunc(calls, slices.Compare)
	return calls
}

// sizes returns how many steps each call had.
func (f *fake) sizes() []int {
	var sizes []int
	for _, keys := range f.seen() {
		sizes = append(sizes, len(keys))
	}
	return sizes
}

// takeOne takes a unit of the key.
func takeOne(ctx context.Context, s *Store, key string) (core.Decision, error) {
	out := make([]core.Decision, 1)
	err := s.Apply(ctx, []core.Op{{Rule: "r", Key: key, Limit: core.Limit{Quota: 1000, Period: 1e9}, Cost: 1}}, out)
	return out[0], err
}
