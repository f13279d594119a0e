package redisstore

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/headgate/headgate/core"
	"github.com/redis/go-redis/v9"
)

// Diagnose implements [core.Diagnoser]. It tells of a client that ignores
// deadlines, and of servers that may evict keys when their memory is full, which
// forgets counts. To see the latter the user of the client needs config|get;
// without it, or where a server does not answer, nothing is said.
func (s *Store) Diagnose(ctx context.Context) []core.Finding {
	var found []core.Finding
	if ignoresDeadlines(s.client) {
		found = append(found, core.Finding{Code: core.CodeDeadlineIgnored, Text: "the Redis client ignores deadlines, so each " +
			"call takes one more goroutine to end in time: set ContextTimeoutEnabled in its options"})
	}
	if anyEvicts(ctx, s.client) {
		found = append(found, core.Finding{Code: core.CodeEviction, Text: "a Redis server evicts keys when its memory is full, " +
			"and with them the counts of callers: set maxmemory-policy to noeviction"})
	}
	return found
}

// ignoresDeadlines tells what is known of go-redis's own clients alone.
func ignoresDeadlines(client redis.UniversalClient) bool {
	switch client.(type) {
	case *redis.Client, *redis.ClusterClient, *redis.Ring:
		_, heeds := traits(client)
		return !heeds
	}
	return false
}

// anyEvicts asks every server that keys may be on.
func anyEvicts(ctx context.Context, client redis.UniversalClient) bool {
	var found atomic.Bool
	ask := func(ctx context.Context, c *redis.Client) error {
		if evicts(ctx, c) {
			found.Store(true)
		}
		return nil
	}
	switch c := client.(type) {
	case *redis.Client:
		_ = ask(ctx, c) // never an error
	case *redis.ClusterClient:
		_ = c.ForEachMaster(ctx, ask) // a cluster that is not to be reached has no finding
	case *redis.Ring:
		_ = c.ForEachShard(ctx, ask)
	}
	return found.Load()
}

// question is a command that the client sends at most once.
type question struct{ *redis.MapStringStringCmd }

// NoRetry overrides the client's own retries; see redis.Cmder.
func (question) NoRetry() bool { return true }

// evicts tells whether a server has a bound for its memory and a policy to stay
// below it. Servers before version 7 know one pattern at a time.
func evicts(ctx context.Context, c *redis.Client) bool {
	q := question{redis.NewMapStringStringCmd(ctx, "config", "get", "maxmemory*")}
	if c.Process(ctx, q) != nil {
		return false
	}
	settings := q.Val()
	bytes, err := strconv.ParseUint(settings["maxmemory"], 10, 64)
	policy := settings["maxmemory-policy"]
	return err == nil && bytes > 0 && policy != "" && policy != "noeviction"
}
