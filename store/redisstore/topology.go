// This file keeps what the client of a Cluster or Ring knows of its servers.

package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
)

// topology is what the client knows about which server has which keys.
type topology struct {
	client   redis.UniversalClient
	wire     *wire
	reloaded atomic.Int64 // when the client was last made to reload, in Unix milliseconds
	mapped   atomic.Bool  // the client of a Cluster has its table of slots
	mapping  atomic.Bool  // it is being found out
}

// shard returns the address of the server that has the key, as the function of Shards does.
func (t *topology) shard(key string) string {
	var server *redis.Client
	var err error
	switch c := t.client.(type) {
	case *redis.ClusterClient:
		if !t.mapped.Load() {
			return "" // the client would ask for its table now
		}
		server, err = c.MasterForKey(context.Background(), t.wire.tag(key))
	case *redis.Ring:
		server, err = c.GetShardClientForKey(t.wire.tag(key))
	case *foreign:
		return c.own.Shard(t.wire.tag(key))
	default:
		return ""
	}

	if err != nil {
		return ""
	}
	return server.Options().Addr
}

// serverOf returns the client of the server that has the key, and its address. They are nil
// and empty while a Cluster has no table: the client would ask for one now. A client that is not
// one of go-redis's has one for all servers, so that is nil.
func (t *topology) serverOf(key string) (server *redis.Client, addr string) {
	_ = rediscall.Safely(context.Background(), func(ctx context.Context) (err error) {
		switch c := t.client.(type) {
		case *redis.Client:
			server = c
		case *redis.ClusterClient:
			if t.mapped.Load() {
				server, err = c.MasterForKey(ctx, key)
			}
		case *redis.Ring:
			server, err = c.GetShardClientForKey(key)
		case *foreign:
			addr = c.own.Shard(key)
		}
		return err
	})

	if server != nil {
		addr = server.Options().Addr
	}
	return server, addr
}

// clientOf returns the client of the server that has the key, or nil if it is not known.
func (t *topology) clientOf(ctx context.Context, key string) (*redis.Client, error) {
	switch c := t.client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	case *redis.Ring:
		return c.GetShardClientForKey(key)
	}
	return nil, nil
}

// reloadPause is the minimum pause between two requests to a client to reload the
// topology.
const reloadPause = 200 * time.Millisecond

// reloadIfMoved makes the client of a Cluster reload the topology at once when an error
// indicates that it may be out of date. By itself the client would go on asking
// a dead node for up to a minute. It reloads in its own goroutine, one reload
// at a time, but pauses only after a successful one. The pause here keeps callers
// from overloading the remaining servers during an outage.
func (t *topology) reloadIfMoved(ctx context.Context, err error) {
	c, ok := t.client.(*redis.ClusterClient)
	if !ok {
		return
	}
	if err == nil && !t.mapped.Load() {
		t.mapped.Store(true) // the client has a table, and keeps one
	}
	if err == nil || !doubtsTopology(err) {
		return
	}
	now, last := time.Now().UnixMilli(), t.reloaded.Load()
	if since := now - last; since >= 0 && since < reloadPause.Milliseconds() {
		return
	}
	if t.reloaded.CompareAndSwap(last, now) {
		c.ReloadState(ctx)
		t.learnTable(ctx, c)
	}
}

// doubtsTopology reports whether the error may come from a node that is dead,
// cut off, or no longer responsible.
func doubtsTopology(err error) bool {
	for _, prefix := range []string{"CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout)
}

// learnTable finds out in the background whether the client has a table, until it has
// one. A service may begin while the server of its first keys is away.
func (t *topology) learnTable(ctx context.Context, c *redis.ClusterClient) {
	if t.mapped.Load() || !t.mapping.CompareAndSwap(false, true) {
		return
	}

	go func() {
		defer t.mapping.Store(false)
		err := rediscall.Safely(context.WithoutCancel(ctx), func(ctx context.Context) error {
			_, err := c.MasterForKey(ctx, "*")
			return err
		})

		if err == nil {
			t.mapped.Store(true)
		}
	}()
}
