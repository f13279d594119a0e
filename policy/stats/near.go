// This file publishes the keys that come near their limits, and reads those of all instances.

package stats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/observe/events"
)

const (
	// NearKept is how long a key that has come near its limit is listed, and not listed again.
	NearKept = time.Hour

	// MaxNear is the maximum number of keys of an application that are listed.
	MaxNear = 10_000

	// maxNearWaiting bounds the keys that an instance has not written yet, and maxNearKey the
	// bytes of a key that is written.
	maxNearWaiting = 1000
	maxNearKey     = 512
)

// NearKey is a key that has come near its limit, as Policy.Warn says it.
type NearKey struct {
	Policy string
	Key    string    // as the policy counts it; it holds whatever the client sent
	At     time.Time // by the server's clock, in microseconds
}

// nearKeys are the keys that were not written yet. The zero value is ready for use.
type nearKeys struct {
	mu      sync.Mutex
	waiting map[string]struct{} // by member; guarded by mu
}

// memberOf returns the member of the sorted set for a key. No name of a policy has a colon.
func memberOf(policy, key string) string { return policy + ":" + key }

// add adds a key, unless as many wait as may. A key that is longer than those which are written is
// left out.
func (n *nearKeys) add(e events.Near) {
	if len(e.Key) > maxNearKey {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()

	// A key that comes near its limit again before the write is there already.
	if n.waiting == nil {
		n.waiting = map[string]struct{}{}
	}
	if len(n.waiting) < maxNearWaiting {
		n.waiting[memberOf(e.Rule, e.Key)] = struct{}{}
	}
}

// list returns what waits.
func (n *nearKeys) list() (members []any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for m := range n.waiting {
		members = append(members, m)
	}
	return members
}

// written removes what was written.
func (n *nearKeys) written(members []any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range members {
		delete(n.waiting, m.(string))
	}
}

// Hooks returns hooks by which the recorder hears of keys near their limits, for
// limiter.Config.Hooks. It publishes them with its counts, each once in [NearKept] over all
// instances, at most [MaxNear] of an application at a time, none of more than 512 bytes. Such keys
// are then in Redis, and shown to all who may read it. Keys of a process that is killed before
// its next write are lost.
func (r *Recorder) Hooks() *events.Hooks { return &events.Hooks{Near: r.near.add} }

// addNear lists keys that are not listed yet.
//
// KEYS: near. ARGV: the milliseconds for which a key is listed; how many are listed at most; the
// keys. Reply: nothing.
var addNear = redis.NewScript(`
local t = redis.call('TIME')
local now, kept = t[1] * 1000000 + t[2], tonumber(ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - kept * 1000))
local room = ARGV[2] - redis.call('ZCARD', KEYS[1])
for i = 3, #ARGV do
  if room > 0 then
    room = room - redis.call('ZADD', KEYS[1], 'NX', string.format('%.0f', now), ARGV[i])
  end
end
redis.call('PEXPIRE', KEYS[1], kept)
return {}
`)

// writeNear writes the keys that wait. What cannot be written waits on.
func (r *Recorder) writeNear(ctx context.Context) error {
	members := r.near.list()
	if len(members) == 0 {
		return nil
	}

	// The server lists a key that comes twice once, so a lost answer does no harm.
	args := append([]any{NearKept.Milliseconds(), MaxNear}, members...)
	if _, err := r.ask(ctx, addNear, []string{r.keys.near()}, args...); err != nil {
		return err
	}
	r.near.written(members)
	return nil
}

// listNear lists the keys that are not listed for too long.
//
// KEYS: near. ARGV: the milliseconds for which a key is listed. Reply: keys and their times.
var listNear = redis.NewScript(`
local t = redis.call('TIME')
local since = t[1] * 1000000 + t[2] - ARGV[1] * 1000
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', since), '+inf', 'WITHSCORES')
`)

// ReadNear returns the keys of an application that came near their limits within [NearKept], those
// that did so first come first. An empty prefix means [DefaultPrefix]. It takes one round trip, and
// at most [DefaultTimeout].
func ReadNear(ctx context.Context, client redis.UniversalClient, prefix, app string) ([]NearKey, error) {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()

	var reply []string
	err := rediscall.NewCaller(client).Do(ctx, func(ctx context.Context) (err error) {
		keys := []string{keysOf(cmp.Or(prefix, DefaultPrefix), app).near()}
		reply, err = listNear.Run(ctx, client, keys, NearKept.Milliseconds()).StringSlice()
		return err
	})
	if err == nil && len(reply)%2 != 0 {
		err = errors.New("the server's answer is not of this version")
	}
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}

	// The reply is a flat list of members and scores, and a key may have any byte.
	list := make([]NearKey, 0, len(reply)/2)
	for i := 0; i < len(reply); i += 2 {
		policy, key, _ := strings.Cut(reply[i], ":")
		at, err := strconv.ParseFloat(reply[i+1], 64)
		if err != nil {
			return nil, fmt.Errorf("stats: the time of a key is not a number: %w", err)
		}
		list = append(list, NearKey{policy, key, time.UnixMicro(int64(at)).UTC()})
	}
	return list, nil
}
