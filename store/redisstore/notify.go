// This file reports events, and the status of the store.

package redisstore

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/observe/events"
)

// serversOf returns how the client reaches its servers.
func serversOf(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.ClusterClient:
		return kindCluster
	case *redis.Ring:
		return "ring"
	case *redis.Client:
		if c.Options().Addr == sentinelAddr {
			return "sentinel"
		}
		return kindStandalone
	case *foreign:
		return c.own.Kind()
	}
	return ""
}

// sentinelAddr is the address that go-redis gives a client of Sentinel.
const sentinelAddr = "FailoverClient"

// notifier reports to the hooks of a store.
type notifier struct {
	listeners events.Listeners
	cached    atomic.Uint64 // refusals that were answered without the server
}

// notifyCached reports an op that was refused without the server.
func (n *notifier) notifyCached(op *core.Op) {
	n.cached.Add(1)
	if f := n.listeners.Hooks().CachedRefusal; f != nil {
		f(op.Rule)
	}
}

// notifyCall reports the call of a batch, which had steps and operations at first, and
// ended with err. The steps may have errors of their own.
func (n *notifier) notifyCall(b *batch, steps, ops int, took time.Duration, err error) {
	f := n.listeners.Hooks().StoreCall
	if f == nil {
		return
	}

	if err == nil {
		err = b.failure
	}
	for i := 0; err == nil && i < len(b.steps); i++ {
		err = b.steps[i].err
	}

	f(events.StoreCall{Store: "redis", Steps: steps, Ops: ops, Took: took, Err: err, Type: typeOf(err)})
}

// types are the types of the errors whose replies begin with a word.
var types = map[string]events.ErrorType{
	"OOM": events.OOM,

	"READONLY": events.ReadOnly, "MISCONF": events.ReadOnly,
	"NOREPLICAS": events.ReadOnly, "MASTERDOWN": events.ReadOnly,

	"NOSCRIPT": events.Script, "BUSY": events.Script, "Error compiling script": events.Script,
	"Error running script": events.Script, "UNKILLABLE": events.Script, "WRONGTYPE": events.Script,
}

// typeOf returns the type of an error of a call.
func typeOf(err error) events.ErrorType {
	var network net.Error
	var dial *net.OpError

	// The errors of this package come first: the replies that they wrap may begin with other words.
	switch {
	case err == nil:
		return events.NoError
	case errors.Is(err, ErrCredentials), errors.Is(err, ErrPermission), redis.IsAuthError(err), rediscall.Forbids(err):
		return events.Auth
	case errors.Is(err, ErrUnreadable), errors.Is(err, ErrFormat):
		return events.Script
	case errors.As(err, &dial) && dial.Op == "dial" && !dial.Timeout():
		return events.Dial
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, redis.ErrPoolTimeout), errors.As(err, &network) && network.Timeout():
		return events.Timeout
	}

	for prefix, t := range types {
		if redis.HasErrorPrefix(err, prefix) {
			return t
		}
	}
	return events.Other
}
