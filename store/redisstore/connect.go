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

	// reconnect is the minimum pause between two rounds of connecting.
	reconnect = 200 * time.Millisecond
)

// connect has the client connect in the background, after a call that was late. By itself
// the client greets a server under the deadline of the call that found no connection, and
// drops the connection if the call ends before. Far from the server every call does.
//
// In a round, as many commands at once as calls may be in flight have more time than a
// call. The client connects for those that find no idle connection, and keeps what it has
// connected. There is one round at a time, and a pause between two, so a server that hangs
// meets few of them. A client that ignores deadlines does not drop connections.
func (s *Store) connect(err error) {
	if !late(err) || s.ignoresDeadline || !s.connecting.TryLock() {
		return
	}
	if time.Since(s.connected) < reconnect {
		s.connecting.Unlock()
		return
	}
	go func() {
		defer s.connecting.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeouts*s.timeout)
		defer cancel()
		_ = rediscall.Safely(ctx, s.connectServers) // the next late call tries again
		s.connected = time.Now()
	}()
}

// late reports whether a call ended before its answer came.
func late(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout() || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrPoolTimeout)
}

// connectServers has the client connect to each server that decides.
func (s *Store) connectServers(ctx context.Context) error {
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, connectOne)
	case *redis.Ring:
		return c.ForEachShard(ctx, connectOne)
	case *redis.Client:
		return connectOne(ctx, c)
	}
	return nil
}

// connectOne has the client of a server connect. It sends TIME, which the user of a store
// may call. Any reply proves a connection, an error too.
func connectOne(ctx context.Context, c *redis.Client) error {
	var all sync.WaitGroup
	for range maxBatches {
		all.Go(func() {
			_ = rediscall.Safely(ctx, func(ctx context.Context) error {
				return c.Process(ctx, rediscall.Reply{Cmd: redis.NewCmd(ctx, "time")})
			})
		})
	}
	all.Wait()
	return nil
}
