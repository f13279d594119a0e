package redisstore

import (
	"context"
	"errors"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/redis/go-redis/v9"
)

// Diagnose implements [core.Diagnoser]. It tells of a client that ignores
// deadlines, of a user who lacks a permission on any server, and of servers that
// may evict keys when their memory is full, which forgets counts. To see the
// latter the user of the client needs config|get, and nothing is said without.
// A server that does not answer, or does not let the client in, is asked again.
func (s *Store) Diagnose(ctx context.Context) []core.Finding {
	var found []core.Finding
	if ignoresDeadlines(s.client) {
		found = append(found, core.Finding{Code: core.CodeDeadlineIgnored, Text: "the Redis client ignores deadlines, so each " +
			"call takes one more goroutine to end in time: set ContextTimeoutEnabled in its options"})
	}
	e := s.examine(ctx)
	if len(e.lacking) > 0 {
		found = append(found, core.Finding{Code: core.CodePermission, Text: "the Redis user may not run " +
			strings.Join(e.lacking, ", ") + " on the keys of the limiter: " + s.remedy()})
	}
	if e.evicts {
		found = append(found, core.Finding{Code: core.CodeEviction, Text: "a Redis server evicts keys when its memory is full, " +
			"and with them the counts of callers: set maxmemory-policy to noeviction"})
	}
	if e.unanswered {
		found = append(found, core.Finding{Code: core.CodeUnanswered, Text: "a Redis server did not answer"})
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

// answered reports whether a reply is the server's last word on a question: also
// that it may not be asked, or that it does not know the command, but not that
// it is unable to answer for now.
func answered(err error) bool {
	var reply redis.Error
	return err == nil || errors.As(err, &reply) && !neverRan(err) && !redis.IsAuthError(err)
}
