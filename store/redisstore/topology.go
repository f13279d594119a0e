package redisstore

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/redis/go-redis/v9"
)

// learn has the client of a Cluster look at once who is master of what when an
// error says that it may be out of date. By itself it would go on asking a dead
// node for up to a minute. The client looks in its own goroutine, one at a time
// and with a pause in between, so every call may ask for it.
func (s *Store) learn(ctx context.Context, err error) {
	if c, ok := s.client.(*redis.ClusterClient); ok && err != nil && doubtsTopology(err) {
		c.ReloadState(ctx)
	}
}

// doubtsTopology tells whether the error may come from a node that is dead, cut
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
