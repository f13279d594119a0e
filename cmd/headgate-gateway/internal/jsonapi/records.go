// This file keeps what was answered to takes with an id, and which takes were refunded or
// settled, so that neither happens twice.

package jsonapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// records holds texts by name, each for a time. Its methods are atomic for a name.
type records interface {
	// claim puts the text under the name if there is none, and otherwise returns the text
	// that is there.
	claim(ctx context.Context, name, text string, ttl time.Duration) (there string, err error)

	// replace puts the text under the name.
	replace(ctx context.Context, name, text string, ttl time.Duration) error

	// get returns the text under the name, or "".
	get(ctx context.Context, name string) (string, error)

	// remove removes the name.
	remove(ctx context.Context, name string) error
}

// hashed returns the name of a record about parts that clients choose.
func hashed(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		sum := sha256.Sum256([]byte(p))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// errAway is the error of a call that is not made, because the last one failed.
var errAway = errors.New("jsonapi: Redis did not answer a moment ago")

// awayPause is how long no call is made after one that failed.
const awayPause = time.Second

// redisRecords keeps the records in Redis.
type redisRecords struct {
	client  redis.UniversalClient
	prefix  string
	timeout time.Duration

	awayUntil atomic.Int64 // an instant in microseconds; 0 while Redis answers
}

// call calls f, unless Redis did not answer a moment ago, so that few requests wait for it.
// The call outlives the client, but not the deadline of ctx. That Redis does not have a name is
// no error.
func (r *redisRecords) call(ctx context.Context, f func(context.Context) error) error {
	// After the pause one request tries, and moves the end of the pause, so that the others do not
	// wait.
	now := time.Now()
	until := r.awayUntil.Load()
	if now.UnixMicro() < until {
		return errAway
	}
	if until != 0 && !r.awayUntil.CompareAndSwap(until, now.Add(awayPause).UnixMicro()) {
		return errAway // another request tries
	}

	limit := r.timeout
	if d, ok := ctx.Deadline(); ok {
		limit = min(limit, d.Sub(now))
	}

	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()

	err := f(within)
	if err != nil && !errors.Is(err, redis.Nil) {
		r.awayUntil.Store(time.Now().Add(awayPause).UnixMicro())
		return err
	}
	r.awayUntil.Store(0)
	return nil
}

// claim makes a second attempt if the record has just expired.
func (r *redisRecords) claim(ctx context.Context, name, text string, ttl time.Duration) (there string, err error) {
	for range 2 {
		var claimed bool
		if err = r.call(ctx, func(ctx context.Context) (err error) {
			claimed, err = r.client.SetNX(ctx, r.prefix+name, text, ttl).Result()
			return err
		}); err != nil || claimed {
			return "", err
		}
		if there, err = r.get(ctx, name); err != nil || there != "" {
			return there, err
		}
	}
	return "", errAway
}

func (r *redisRecords) replace(ctx context.Context, name, text string, ttl time.Duration) error {
	return r.call(ctx, func(ctx context.Context) error { return r.client.Set(ctx, r.prefix+name, text, ttl).Err() })
}

func (r *redisRecords) get(ctx context.Context, name string) (text string, err error) {
	err = r.call(ctx, func(ctx context.Context) (err error) {
		text, err = r.client.Get(ctx, r.prefix+name).Result()
		return err
	})
	return text, err
}

func (r *redisRecords) remove(ctx context.Context, name string) error {
	return r.call(ctx, func(ctx context.Context) error { return r.client.Del(ctx, r.prefix+name).Err() })
}

// errFull is the error of a record for which there is no room.
var errFull = errors.New("jsonapi: there is no room for more records")

// memoryRecords keeps the records of one process. No more than max bytes are kept: a
// record that would be forgotten early could let something happen twice.
type memoryRecords struct {
	max int

	mu    sync.Mutex
	bytes int                     // Guarded by mu.
	texts map[string]kept         // Guarded by mu.
	due   map[time.Duration][]due // by how long they were to last, the oldest first. Guarded by mu.
}

type kept struct {
	text  string
	until time.Time
}

// due is when a record may have expired.
type due struct {
	name string
	at   time.Time
}

// overhead is what a record takes beside its name and text, roughly.
const overhead = 200

func size(name, text string) int { return 2*len(name) + len(text) + overhead }

// forgetLocked removes what has expired.
func (m *memoryRecords) forgetLocked(now time.Time) {
	for ttl, list := range m.due {
		// Records of one lifetime expire in the order in which they were put, so none is looked at
		// early.
		for len(list) > 0 && !now.Before(list[0].at) {
			name := list[0].name
			list[0] = due{}
			list = list[1:]

			// A record that was replaced has a later end of its own in the list.
			if k, ok := m.texts[name]; ok && !now.Before(k.until) {
				m.dropLocked(name, k)
			}
		}
		m.due[ttl] = list
	}
}

func (m *memoryRecords) dropLocked(name string, k kept) {
	m.bytes -= size(name, k.text)
	delete(m.texts, name)
}

// putLocked puts a record.
func (m *memoryRecords) putLocked(name, text string, now time.Time, ttl time.Duration) error {
	old, there := m.texts[name]
	grown := size(name, text)
	if there {
		grown -= size(name, old.text)
	}
	if m.bytes+grown > m.max {
		return errFull
	}

	if m.texts == nil {
		m.texts, m.due = map[string]kept{}, map[time.Duration][]due{}
	}
	m.bytes += grown
	m.texts[name] = kept{text, now.Add(ttl)}
	m.due[ttl] = append(m.due[ttl], due{name, now.Add(ttl)})
	return nil
}

func (m *memoryRecords) claim(_ context.Context, name, text string, ttl time.Duration) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	now := time.Now()
	m.forgetLocked(now)
	if k, ok := m.texts[name]; ok && now.Before(k.until) {
		return k.text, nil
	}
	return "", m.putLocked(name, text, now, ttl)
}

func (m *memoryRecords) replace(_ context.Context, name, text string, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.putLocked(name, text, time.Now(), ttl)
}

func (m *memoryRecords) get(_ context.Context, name string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	now := time.Now()
	m.forgetLocked(now)
	if k, ok := m.texts[name]; ok && now.Before(k.until) {
		return k.text, nil
	}
	return "", nil
}

func (m *memoryRecords) remove(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k, ok := m.texts[name]; ok {
		m.dropLocked(name, k)
	}
	return nil
}
