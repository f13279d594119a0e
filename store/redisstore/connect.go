// This file has the client connect for calls that end before it is connected.

package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
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

// connector has the client connect, and finds out why it does not. A call meets three parts of
// it, in this order:
//
//	dials   trust says whether any server is doubted. While none is, a call costs one load.
//	doors   a door that is shut keeps calls from its server; a trial opens it.
//	connect after a call that was late, or while more calls are in flight than before, a
//	        round of connecting prepares connections:
//
//	        connect                      connected, or its time is over
//	idle ------------> a round ------------------------------------------> pause ---> idle
type connector struct {
	client          redis.UniversalClient
	ignoresDeadline bool // the client

	topology *topology
	servers  *servers

	ready      atomic.Int64 // for how many calls at a time the client has connections
	connecting sync.Mutex   // held by a round of connecting
	reconnect  time.Time    // when the next round may begin; guarded by connecting
	dials      dialCheck
	doors      doors
}

// connect has the client connect in the background, so that n calls at a time find a
// connection to each server but done, which may be nil. By itself the client greets a server
// under the deadline of the call that found no connection, and drops the connection if the
// call ends before. Far from the server every call does.
//
// In a round, n commands at once have more time than a call. The client connects for those
// that find no idle connection, and keeps what it has connected. There is one round at a
// time, a pause between two, and none while a server is doubted: trials connect then. A
// client that ignores deadlines does not drop connections.
func (c *connector) connect(n int, done *redis.Client) {
	if c.ignoresDeadline || c.dials.trust.Load() == mistaken || !c.connecting.TryLock() {
		return // a trial of a doubted server connects
	}

	begun := time.Now()
	if begun.Before(c.reconnect) {
		c.connecting.Unlock()
		return
	}

	go func() {
		defer c.connecting.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeouts*c.servers.reach())
		defer cancel()
		err := rediscall.Safely(ctx, func(ctx context.Context) error { return c.connectServers(ctx, n, done) })

		// A round that failed may be repeated soon. After one that was quick the calls have their
		// connections, so the next waits longer.
		ended, pause := time.Now(), reconnect
		if err == nil {
			c.prepared(n)
			if ended.Sub(begun) <= c.servers.budget() {
				pause = max(pause, connectTimeouts*c.servers.budget())
			}
		}
		c.reconnect = ended.Add(pause)
	}()
}

// connections returns for how many calls at a time the client has connections.
func (c *connector) connections() int { return int(c.ready.Load()) }

// prepared records that the client has connections for n calls at a time. One round of connecting
// at a time, and one trial, call it.
func (c *connector) prepared(n int) {
	for {
		ready := c.ready.Load()
		if int64(n) <= ready || c.ready.CompareAndSwap(ready, int64(n)) {
			return
		}
	}
}

// connectServers has the client connect to each server that decides but for done.
func (c *connector) connectServers(ctx context.Context, n int, done *redis.Client) error {
	one := func(ctx context.Context, server *redis.Client) error {
		if server == done {
			return nil
		}
		ready, err := connectOne(ctx, server, n)
		if ready < n {
			return err
		}
		return nil
	}

	switch client := c.client.(type) {
	case *redis.ClusterClient:
		return client.ForEachMaster(ctx, one)
	case *redis.Ring:
		return client.ForEachShard(ctx, one)
	case *redis.Client:
		return one(ctx, client)
	case *foreign:
		if ready, err := client.own.Connect(ctx, "", n); ready < n {
			return err
		}
	}
	return nil
}

// connectOne has the client of a server connect, and returns how many of n connections are
// ready, and why others are not. It sends TIME, which the user of a store may call. Any reply
// proves a connection, an error too, unless it turns the client away.
func connectOne(ctx context.Context, c *redis.Client, n int) (ready int, err error) {
	errs := make([]error, n)
	var all sync.WaitGroup

	// All commands are in progress at once: each needs a connection of its own.
	for i := range errs {
		all.Go(func() {
			err := rediscall.Safely(ctx, func(ctx context.Context) error {
				return c.Process(ctx, rediscall.Reply{Cmd: redis.NewCmd(ctx, "time")})
			})
			var reply redis.Error
			if !errors.As(err, &reply) || unwelcome(err) {
				errs[i] = err
			}
		})
	}
	all.Wait()

	for _, each := range errs {
		if each == nil {
			ready++
		} else if err == nil {
			err = each
		}
	}
	return ready, err
}
