package adapterspec

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
)

// epoch is the time in seconds at which the clock of every store starts.
const epoch = 1_800_000_000

// clock stands still unless it is set.
type clock struct{ micros atomic.Int64 }

// set makes the clock show the time d after the start.
func (c *clock) set(d time.Duration) { c.micros.Store(epoch*1e6 + d.Microseconds()) }

// makeStore returns an empty store on the clock.
type makeStore func(t testing.TB, c *clock) core.Store

func inMemory(_ testing.TB, c *clock) core.Store {
	return memstore.MustNew(memstore.Options{Clock: c.micros.Load})
}

// inRedis returns stores on one server, each with a client and a prefix of its own: a store adds
// to its client, which the one before may still use to release a lease.
func inRedis(t testing.TB) makeStore {
	addr := redistest.Addr(t)
	return func(t testing.TB, c *clock) core.Store {
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true,
			DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience})
		t.Cleanup(func() { client.Close() })
		return redisstore.MustNew(client, redisstore.Options{
			Prefix: redistest.Prefix(t), Timeout: patience, Clock: c.micros.Load})
	}
}

// observedStore is a store that reports refunds, bookings and refusals, and that a test
// can break.
type observedStore struct {
	core.Store
	broken   atomic.Bool
	refunded chan struct{} // one for every step that refunded units
	booked   chan struct{} // one for every step that booked a future slot
	refused  chan struct{} // one for steps that were refused, unless it is full
}

func observe(s core.Store) *observedStore {
	return &observedStore{Store: s, refunded: make(chan struct{}, 100), booked: make(chan struct{}, 100),
		refused: make(chan struct{}, 1)}
}

var errBroken = errors.New("the store is broken")

// Apply calls the store unless it is broken. It lets the store take its time: on a busy
// machine that may be longer than the second in which the limiter gives units back.
func (o *observedStore) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if o.broken.Load() {
		return errBroken
	}
	if err := o.Store.Apply(context.WithoutCancel(ctx), ops, out); err != nil {
		return err
	}

	// A rule that waits asks again and again: one signal is enough.
	if !core.Granted(ops, out) {
		select {
		case o.refused <- struct{}{}:
		default:
		}
	}

	// One signal stands for the step, however many of its operations are of the kind.
	for i := range ops {
		if ops[i].Verb == core.Refund {
			o.refunded <- struct{}{}
			break
		}
		if out[i].Wait > 0 {
			o.booked <- struct{}{}
			break
		}
	}
	return nil
}
