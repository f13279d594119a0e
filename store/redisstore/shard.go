// This file knows the servers that fail by themselves.

package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
)

// shardError is the error of one shard, for a step on several.
type shardError struct {
	shard string
	err   error
}

func (e *shardError) Error() string { return e.err.Error() }

// Unwrap returns the error of the shard.
func (e *shardError) Unwrap() error { return e.err }

// Shard returns the name of the shard that failed; see failover.Sharded.
func (e *shardError) Shard() string { return e.shard }

// decidePart carries out a part of a step. Its error names the shard that had the part
// when it was asked.
func (s *Store) decidePart(ctx context.Context, p *part) error {
	shard := s.Shard(p.ops[0].Key)
	if err := s.decide(ctx, p.ops, p.out); err != nil {
		return &shardError{shard, err}
	}
	return nil
}

// Shard implements failover.Sharded. In a Cluster or Ring it returns the address of the
// server that has the key, in the table that the client has. In a Cluster that is "" until
// a server has answered.
func (s *Store) Shard(key string) string { return s.shard(key) }

// shard returns the address of the server that has the key, as Shard does.
func (s *Store) shard(key string) string {
	var server *redis.Client
	var err error
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		if !s.mapped.Load() {
			return "" // the client would ask for its table now
		}
		server, err = c.MasterForKey(context.Background(), s.tag(key))
	case *redis.Ring:
		server, err = c.GetShardClientForKey(s.tag(key))
	default:
		return ""
	}
	if err != nil {
		return ""
	}
	return server.Options().Addr
}

// tag returns the hash tag of the keys of a subject.
func (s *Store) tag(subject string) string {
	if s.oneSlot {
		return "*"
	}
	var text [2 * maxReadable]byte
	if tag := s.text(text[:0], subject); string(tag) != subject {
		return string(tag)
	}
	return subject
}

// learnTable finds out in the background whether the client has a table, until it has
// one. A service may begin while the server of its first keys is away.
func (s *Store) learnTable(ctx context.Context, c *redis.ClusterClient) {
	if s.mapped.Load() || !s.mapping.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.mapping.Store(false)
		err := rediscall.Safely(context.WithoutCancel(ctx), func(ctx context.Context) error {
			_, err := c.MasterForKey(ctx, "*")
			return err
		})
		if err == nil {
			s.mapped.Store(true)
		}
	}()
}
