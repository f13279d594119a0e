package redisstore

import (
	"crypto/tls"

	"github.com/redis/go-redis/v9"
)

// traits tells what the client is: one that spreads keys over servers, and one
// that heeds the deadline of a context.
func traits(client redis.UniversalClient) (sharded, heedsDeadline bool) {
	switch c := client.(type) {
	case *redis.Client:
		return false, c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return true, c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return true, c.Options().ContextTimeoutEnabled
	}
	return false, false
}

// overstays reports whether the client may read on after the deadline although it
// heeds that. Before a command it looks for push messages, which RESP3 has, when
// a connection has something to read, and gives them 50 ms whatever the deadline.
// Over TLS what is there to read need not be a message.
func overstays(client redis.UniversalClient) bool {
	pushed := func(config *tls.Config, protocol int) bool { return config != nil && protocol != 2 }
	switch c := client.(type) {
	case *redis.Client:
		return pushed(c.Options().TLSConfig, c.Options().Protocol)
	case *redis.ClusterClient:
		return pushed(c.Options().TLSConfig, c.Options().Protocol)
	case *redis.Ring:
		return pushed(c.Options().TLSConfig, c.Options().Protocol)
	}
	return false
}
