// This file finds out how far a server is from which no reply comes in time.

package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
)

// remeasure is the minimum pause between two measurements of a server.
const remeasure = time.Second

// measure finds out in the background how far the server of a key is, after a call that was
// late: nothing else would, if it is farther than a call may take. It does so if the distance
// is not known, or the server has not answered for a second. There is one measurement of a
// server at a time.
func (s *Store) measure(v *server, key string) {
	now := time.Now()
	v.mu.Lock()
	far := v.distance.rtt() == 0 || v.at(now)-v.since.Load() >= int64(remeasure)
	due := far && !v.measuring && now.Sub(v.measured) >= remeasure
	v.measuring = v.measuring || due
	v.mu.Unlock()
	if !due {
		return
	}
	go func() {
		took, ok := s.roundTrip(key)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.measuring = false
		if ok {
			v.measured = time.Now()
			v.repliedLocked(took, v.measured)
		}
	}()
}

// roundTrip returns how long the server of the key takes to answer over a connection that is
// ready. ok is false if there is none, or no reply: a server that hangs meets no new
// connection for this.
func (s *Store) roundTrip(key string) (took time.Duration, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeouts*s.reach())
	defer cancel()
	err := rediscall.Safely(ctx, func(ctx context.Context) error {
		c, err := s.clientOf(ctx, key)
		if err != nil || c == nil || c.PoolStats().IdleConns == 0 {
			return err
		}
		begun := time.Now()
		err = c.Process(ctx, rediscall.Reply{Cmd: redis.NewCmd(ctx, "time")})
		took, ok = time.Since(begun), isReply(err)
		return nil
	})
	return took, ok && err == nil
}

// clientOf returns the client of the server that has the key, or nil if it is not known.
func (s *Store) clientOf(ctx context.Context, key string) (*redis.Client, error) {
	switch c := s.client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	case *redis.Ring:
		return c.GetShardClientForKey(key)
	}
	return nil, nil
}

// noteDistance appends a finding if a server is too far for the timeout.
func (s *Store) noteDistance(found []core.Finding) []core.Finding {
	farthest := time.Duration(0)
	s.eachServer(func(v *server) { farthest = max(farthest, v.roundTrip()) })
	if longest := s.maxCall(); longest < 2*farthest {
		found = append(found, core.Finding{Code: core.CodeTooFar, Text: fmt.Sprintf("a round trip to Redis takes %v, and a call may take %v: "+
			"set redisstore.Options.%s to three round trips, or use a server that is nearer",
			farthest.Round(time.Millisecond/10), longest, s.bound())})
	}
	return found
}

// bound returns the name of the option that bounds a call.
func (s *Store) bound() string {
	if s.fixed > 0 {
		return "Timeout"
	}
	return "MaxTimeout"
}
