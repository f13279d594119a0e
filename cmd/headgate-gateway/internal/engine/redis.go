package engine

import "github.com/redis/go-redis/v9"

// Redis returns the client and the prefix of the keys for a face that keeps something of
// its own in Redis, or nil if the engine has none. The engine closes the client.
func (e *Engine) Redis() (client redis.UniversalClient, prefix string) {
	if e.shared == nil {
		return nil, ""
	}
	return e.shared.client, e.options.RedisPrefix
}
