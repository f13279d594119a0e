package web

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/policy/stats"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/redis/go-redis/v9"
)

// Fleet gives access to the state of the running instances. Its methods are safe
// for concurrent use.
type Fleet interface {
	// Peek returns the decision that a request of one unit would get, and changes
	// nothing.
	Peek(ctx context.Context, p policy.Policy, key string) (core.Decision, error)

	// Reset makes a key fresh.
	Reset(ctx context.Context, p policy.Policy, key string) error

	// Bans returns the keys that policies have banned, those whose bans last longest
	// first.
	Bans(ctx context.Context, policies []string) ([]core.Banned, error)

	// Lift ends the ban of a key.
	Lift(ctx context.Context, p policy.Policy, key string) error

	// Stats returns the counts of an application in the last minutes.
	Stats(ctx context.Context, app string) ([]stats.Minute, error)

	// Instances returns the instances that have reported lately.
	Instances(ctx context.Context) ([]policy.Instance, error)

	// Published returns the label of the published version.
	Published(ctx context.Context) (string, error)
}

// keyTimeout bounds the look-up of a key. It is longer than the default of a store,
// because no request waits for it.
const keyTimeout = 5 * time.Second

// redisFleet is a Fleet in Redis.
type redisFleet struct {
	client redis.UniversalClient
	source *redissource.Source
	store  *redisstore.Store
	prefix string
}

// RedisFleet returns a Fleet of the instances that use a Redis with the prefix of
// the source; "" means the default. It does not close the client. It cannot find
// keys that instances hide with a secret.
func RedisFleet(client redis.UniversalClient, source *redissource.Source, prefix string) (Fleet, error) {
	store, err := redisstore.New(client, redisstore.Options{Prefix: prefix, Timeout: keyTimeout})
	if err != nil {
		return nil, err
	}
	return &redisFleet{client, source, store, prefix}, nil
}

func (f *redisFleet) Peek(ctx context.Context, p policy.Policy, key string) (core.Decision, error) {
	return f.apply(ctx, core.Op{Verb: core.Peek, Rule: p.Name, Key: key, Limit: p.Limit, Ban: p.Ban.Core(),
		Windows: p.Limit.Windows(time.Now().UnixMicro()), Cost: 1, Lease: "console"})
}

func (f *redisFleet) Reset(ctx context.Context, p policy.Policy, key string) error {
	_, err := f.apply(ctx, core.Op{Verb: core.Reset, Rule: p.Name, Key: key, Limit: p.Limit})
	return err
}

// maxListed is how many bans a store is asked for at most.
const maxListed = 10_000

func (f *redisFleet) Bans(ctx context.Context, policies []string) ([]core.Banned, error) {
	lister, ok := core.Store(f.store).(core.BanLister)
	if !ok {
		return nil, fmt.Errorf("a %T cannot list bans: %w", f.store, errors.ErrUnsupported)
	}
	return lister.Bans(ctx, policies, maxListed)
}

func (f *redisFleet) Lift(ctx context.Context, p policy.Policy, key string) error {
	_, err := f.apply(ctx, core.Op{Verb: core.Lift, Rule: p.Name, Key: key, Limit: p.Limit})
	return err
}

func (f *redisFleet) apply(ctx context.Context, op core.Op) (core.Decision, error) {
	var out [1]core.Decision
	err := f.store.Apply(ctx, []core.Op{op}, out[:])
	return out[0], err
}

func (f *redisFleet) Stats(ctx context.Context, app string) ([]stats.Minute, error) {
	return stats.Read(ctx, f.client, f.prefix, app)
}

func (f *redisFleet) Instances(ctx context.Context) ([]policy.Instance, error) {
	return f.source.Instances(ctx)
}

func (f *redisFleet) Published(ctx context.Context) (string, error) { return f.source.Version(ctx) }
