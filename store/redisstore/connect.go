// This file has the client connect for calls that end before it is connected.

package redisstore

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/redis/go-redis/v9"
)

const (
	// connectTimeouts is how many timeouts of a call a connection may take to become
	// ready: a dial, a handshake of TLS and the client's greeting are up to seven round
	// trips, and a Cluster's table may have to come first.
	connectTimeouts = 10

	// reconnect is the minimum pause between two rounds of connecting. After a round that
	// found its connections ready it is connectTimeouts timeouts, if that is longer.
	reconnect = 200 * time.Millisecond
)

// connect has the client connect in the background, so that n calls at a time find a
// connection. By itself the client greets a server under the deadline of the call that
// found no connection, and drops the connection if the call ends before. Far from the
// server every call does.
//
// In a round, n commands at once have more time than a call. The client connects for those
// that find no idle connection, and keeps what it has connected. There is one round at a
// time, and a pause between two, so a server that hangs meets few of them. A round that
// was quick made no connection: it only kept ready ones from calls, which may be late for
// that, and must not begin a round each. A client that ignores deadlines does not drop
// connections.
func (s *Store) connect(n int) {
	if s.ignoresDeadline || !s.connecting.TryLock() {
		return
	}
	begun := time.Now()
	if begun.Before(s.reconnect) {
		s.connecting.Unlock()
		return
	}
	go func() {
		defer s.connecting.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeouts*s.timeout)
		defer cancel()
		err := rediscall.Safely(ctx, func(ctx context.Context) error { return s.connectServers(ctx, n) })
		ended, pause := time.Now(), reconnect
		if err == nil {
			s.queue.prepared(n)
			if ended.Sub(begun) <= s.timeout {
				pause = max(pause, connectTimeouts*s.timeout)
			}
		}
		s.reconnect = ended.Add(pause)
	}()
}

// connectAgain has the client connect after a call that was late.
func (s *Store) connectAgain(err error) {
	if err != nil && late(err) {
		s.connect(s.queue.connections())
	}
}

// late reports whether a call ended before its answer came.
func late(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout() || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrPoolTimeout)
}

// connectServers has the client connect to each server that decides.
func (s *Store) connectServers(ctx context.Context, n int) error {
	one := func(ctx context.Context, c *redis.Client) error { return connectOne(ctx, c, n) }
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, one)
	case *redis.Ring:
		return c.ForEachShard(ctx, one)
	case *redis.Client:
		return one(ctx, c)
	}
	return nil
}

// connectOne has the client of a server connect. It sends TIME, which the user of a store
// may call. Any reply proves a connection, an error too.
func connectOne(ctx context.Context, c *redis.Client, n int) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			err := rediscall.Safely(ctx, func(ctx context.Context) error {
				return c.Process(ctx, rediscall.Reply{Cmd: redis.NewCmd(ctx, "time")})
			})
			var reply redis.Error
			if !errors.As(err, &reply) {
				errs[i] = err
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
