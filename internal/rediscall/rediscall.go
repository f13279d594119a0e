// Package rediscall is shared by all users of a Redis client in this module. It has the traits of
// a client, commands that are sent once, and calls that return in time. A [Caller] makes the
// calls.
package rediscall

import (
	"crypto/tls"

	"github.com/redis/go-redis/v9"
)

// Traits are the properties of a client that matter to its callers.
type Traits struct {
	// Sharded reports whether the client spreads keys over servers.
	Sharded bool

	// IgnoresDeadlines reports whether ContextTimeoutEnabled is not set, so that the
	// client ignores the deadline of a context.
	IgnoresDeadlines bool

	// HeedsDeadlines reports whether each call returns at the deadline of its context.
	// Both may be false: if a connection has something to read before a command, the
	// client reads push messages of RESP3 and allows 50 ms for them whatever the
	// deadline. Over TLS there may be something to read that is not a message.
	HeedsDeadlines bool
}

// TraitsOf returns the traits of a client. An unknown kind of client has all traits
// false.
func TraitsOf(client redis.UniversalClient) Traits {
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		return traits(false, o.ContextTimeoutEnabled, o.TLSConfig, o.Protocol)
	case *redis.ClusterClient:
		o := c.Options()
		return traits(true, o.ContextTimeoutEnabled, o.TLSConfig, o.Protocol)
	case *redis.Ring:
		o := c.Options()
		return traits(true, o.ContextTimeoutEnabled, o.TLSConfig, o.Protocol)
	}
	return Traits{}
}

func traits(sharded, timeouts bool, config *tls.Config, protocol int) Traits {
	mayOverstay := config != nil && protocol != 2
	return Traits{Sharded: sharded, IgnoresDeadlines: !timeouts, HeedsDeadlines: timeouts && !mayOverstay}
}

// Reply, Ints and Strings are commands that the client sends at most once. A
// client that sends a script again because the reply was late counts one request
// several times.
type (
	Reply   struct{ *redis.Cmd }
	Ints    struct{ *redis.IntSliceCmd }
	Strings struct{ *redis.StringSliceCmd }
)

// NoRetry overrides the client's own retries; see redis.Cmder.
func (Reply) NoRetry() bool { return true }

// NoRetry overrides the client's own retries; see redis.Cmder.
func (Ints) NoRetry() bool { return true }

// NoRetry overrides the client's own retries; see redis.Cmder.
func (Strings) NoRetry() bool { return true }
