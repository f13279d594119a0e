package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// relearn is for how long a client is left alone after it was told to look who
// is master of what.
const relearn = 200 * time.Millisecond

// learn has the client of a Cluster look at once who is master of what when an
// error says that it may be out of date. By itself it would go on asking a dead
// node for up to a minute. The client looks in its own goroutine, one at a time,
// but pauses only after a look that succeeded: the pause here keeps the callers
// of an outage from asking without end those servers that are left.
func (s *Store) learn(ctx context.Context, err error) {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok || err == nil || !doubtsTopology(err) {
		return
	}
	now, last := time.Now().UnixMilli(), s.learned.Load()
	if since := now - last; since >= 0 && since < relearn.Milliseconds() {
		return
	}
	if s.learned.CompareAndSwap(last, now) {
		c.ReloadState(ctx)
	}
}

// doubtsTopology reports whether the error may come from a node that is dead, cut
// off, or no longer responsible.
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
