package rueidisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store/redisstore"
)

// client is a client of rueidis in the form that a store needs.
type client struct {
	rueidis rueidis.Client
	slots   *slots // nil unless it is the client of a Cluster
}

var _ redisstore.Client = (*client)(nil)

func newClient(c rueidis.Client) *client {
	own := &client{rueidis: c}
	if c.Mode() == rueidis.ClientModeCluster {
		own.slots = newSlots(own)
	}
	return own
}

// Process implements [redisstore.Client].
func (c *client) Process(ctx context.Context, cmd redis.Cmder) error {
	return c.process(ctx, c.rueidis, cmd)
}

// process sends the command through a client of rueidis.
func (c *client) process(ctx context.Context, to rueidis.Client, cmd redis.Cmder) error {
	err := c.receive(cmd, to.Do(ctx, c.build(to.B(), cmd.Args(), alone)))
	if err != nil {
		cmd.SetErr(err)
	}
	return err
}

// ProcessAll implements [redisstore.Client].
func (c *client) ProcessAll(ctx context.Context, cmds []redis.Cmder) error {
	// They share connections: there is nothing to wait for between two of them.
	built := make([]rueidis.Completed, len(cmds))
	for i, cmd := range cmds {
		built[i] = c.build(c.rueidis.B(), cmd.Args(), piped)
	}

	var first error
	for i, result := range c.rueidis.DoMulti(ctx, built...) {
		if err := c.receive(cmds[i], result); err != nil {
			cmds[i].SetErr(err)
			first = cmp.Or(first, err)
		}
	}
	return first
}

// Kind implements [redisstore.Client].
func (c *client) Kind() string { return string(c.rueidis.Mode()) }

// Shard implements [redisstore.Client].
func (c *client) Shard(keyOrTag string) string {
	if c.slots == nil {
		return ""
	}
	return c.slots.server(keyOrTag)
}

// How a command is sent.
const (
	piped = iota // with others over a connection that they share
	alone        // over a connection of its own while it lasts, as a blocking command is
)

// build returns the command with the arguments. Only a Cluster needs to know which is the key.
func (c *client) build(b rueidis.Builder, args []any, how int) rueidis.Completed {
	key := len(args)
	if c.slots != nil {
		key = keyOf(args)
	}

	cmd := b.Arbitrary(nameOf(args[0]))
	for i, arg := range args[1:] {
		if i+1 == key {
			cmd = cmd.Keys(textOf(arg))
		} else {
			cmd = cmd.Args(textOf(arg))
		}
	}
	if how == piped {
		return cmd.Build()
	}
	return cmd.Blocking()
}

// nameOf returns the name of a command. rueidis turns names into capitals, for which it needs
// memory unless they are.
func nameOf(arg any) string {
	switch name := textOf(arg); name {
	case "evalsha":
		return "EVALSHA"
	case "eval":
		return "EVAL"
	default:
		return name
	}
}

// keyOf returns the index of the first key of a command, or the number of arguments if it has none.
func keyOf(args []any) int {
	switch args[0] {
	case "eval", "evalsha":
		if args[2] != 0 {
			return 3
		}
	case "time", "info":
	default:
		return 1
	}
	return len(args)
}

// textOf returns an argument in the form that Redis reads.
func textOf(arg any) string {
	switch v := arg.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return fmt.Sprint(arg)
}

// receive puts the reply into the command, or returns its error.
func (c *client) receive(cmd redis.Cmder, result rueidis.RedisResult) error {
	m, err := result.ToMessage()
	if err != nil {
		return c.errorOf(err)
	}

	switch into := cmd.(type) {
	case interface{ SetVal([]int64) }:
		return receiveAs(into.SetVal, m, integers)
	case interface{ SetVal([]string) }:
		return receiveAs(into.SetVal, m, (*rueidis.RedisMessage).AsStrSlice)
	case interface{ SetVal(int64) }:
		return receiveAs(into.SetVal, m, (*rueidis.RedisMessage).ToInt64)
	case interface{ SetVal(string) }:
		return receiveAs(into.SetVal, m, (*rueidis.RedisMessage).ToString)
	case interface{ SetVal(time.Time) }:
		return receiveAs(into.SetVal, m, instant)
	case interface{ SetVal(any) }:
		return receiveAs(into.SetVal, m, (*rueidis.RedisMessage).ToAny)
	}
	return fmt.Errorf("rueidisstore: a reply to %s has no place in a %T", cmd.Name(), cmd)
}

// receiveAs puts the message into a command as read reads it.
func receiveAs[T any](set func(T), m rueidis.RedisMessage, read func(*rueidis.RedisMessage) (T, error)) error {
	v, err := read(&m)
	if err == nil {
		set(v)
	}
	return err
}

// integers reads an array of nothing but integers.
func integers(m *rueidis.RedisMessage) ([]int64, error) {
	values, err := m.ToArray()
	if err != nil {
		return nil, err
	}

	list := make([]int64, len(values))
	for i := range values {
		if list[i], err = values[i].ToInt64(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// errTime is the error of a reply that is no time.
var errTime = errors.New("rueidisstore: not a reply to TIME")

// instant reads the reply to TIME.
func instant(m *rueidis.RedisMessage) (time.Time, error) {
	parts, err := m.AsIntSlice()
	if err != nil || len(parts) != 2 {
		return time.Time{}, errors.Join(errTime, err)
	}
	return time.Unix(parts[0], parts[1]*1000), nil
}

// errorOf returns an error of rueidis in the form of go-redis's.
func (c *client) errorOf(err error) error {
	var said *rueidis.RedisError
	switch {
	case !errors.As(err, &said):
		if c.slots != nil {
			c.slots.doubt()
		}
		return err
	case said.IsNil():
		return redis.Nil
	}
	return &replyError{said}
}

// replyError is an error that the server replies.
type replyError struct{ said *rueidis.RedisError }

func (e *replyError) Error() string { return e.said.Error() }

// Unwrap returns the error of rueidis.
func (e *replyError) Unwrap() error { return e.said }

// RedisError marks a reply; see [redis.Error].
func (*replyError) RedisError() {}
