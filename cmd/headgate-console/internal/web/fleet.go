package web

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

// Fleet gives access to the state of the running instances. Its methods are safe
// for concurrent use. The error of a key whose state this version cannot read is a
// [service.InvalidError].
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

	// Impose bans a key for a time from now on, under a policy that bans.
	Impose(ctx context.Context, p policy.Policy, key string, span time.Duration) error

	// Credits returns what a key has left of its grants, in the order of their ends.
	Credits(ctx context.Context, p policy.Policy, key string) ([]redisstore.Credit, error)

	// Grant gives a key units beside its limit, until an instant, unless the decision says that
	// such a grant cannot be.
	Grant(ctx context.Context, p policy.Policy, key string, units int64, until time.Time) (core.Decision, error)

	// Revoke takes all units of grants from a key.
	Revoke(ctx context.Context, p policy.Policy, key string) error

	// Debit charges a key units, if need be beyond its limit. Decision.Taken is how many.
	Debit(ctx context.Context, p policy.Policy, key string, units int64) (core.Decision, error)

	// Published returns the label of the published version.
	Published(ctx context.Context) (string, error)
}

// keyTimeout bounds the look-up of a key. It is longer than the default of a store,
// because no request waits for it.
const keyTimeout = 5 * time.Second

// redisFleet is a Fleet in Redis.
type redisFleet struct {
	reports Reports
	store   *redisstore.Store
}

// Reports is what the instances report. Its methods are safe for concurrent use.
type Reports interface {
	// Version returns the label of the published version.
	Version(ctx context.Context) (string, error)
}

// RedisFleet returns a Fleet of the instances that report and that use a Redis with the
// prefix; "" means the default. It does not close the client. It cannot find
// keys that instances hide with a secret.
func RedisFleet(client redis.UniversalClient, reports Reports, prefix string) (Fleet, error) {
	store, err := redisstore.New(client, redisstore.Options{Prefix: prefix, Timeout: keyTimeout})
	if err != nil {
		return nil, err
	}
	return &redisFleet{reports, store}, nil
}

func (r *redisFleet) Peek(ctx context.Context, p policy.Policy, key string) (core.Decision, error) {
	op := opOn(p, core.Peek, key)
	op.Ban, op.Cost, op.Lease = p.Ban.OrNil(), 1, "console"
	d, err := r.apply(ctx, op)

	// The store does not know of a ban beside the policy.
	now := time.Now()
	if end := p.BanOf(key, now); err == nil && !end.IsZero() && p.Mode == policy.Enforce {
		d.Allowed, d.Banned, d.RetryAfter = false, true, max(d.RetryAfter, end.Sub(now))
	}
	return d, err
}

func (r *redisFleet) Reset(ctx context.Context, p policy.Policy, key string) error {
	_, err := r.apply(ctx, opOn(p, core.Reset, key))
	return err
}

// maxListed is how many bans a store is asked for at most.
const maxListed = 10_000

func (r *redisFleet) Bans(ctx context.Context, policies []string) ([]core.Banned, error) {
	return r.store.Report().Bans(ctx, policies, maxListed)
}

func (r *redisFleet) Lift(ctx context.Context, p policy.Policy, key string) error {
	_, err := r.apply(ctx, opOn(p, core.Lift, key))
	return err
}

// Impose bans a key for a time from now on, whatever ban it was under.
func (r *redisFleet) Impose(ctx context.Context, p policy.Policy, key string, span time.Duration) error {
	op := opOn(p, core.Impose, key)
	if op.Ban = p.Ban.OrNil(); op.Ban == nil {
		return errors.New("the policy bans no keys")
	}
	op.Ban.For, op.Ban.Max = span, span
	_, err := r.apply(ctx, op)
	return err
}

func (r *redisFleet) Credits(ctx context.Context, p policy.Policy, key string) ([]redisstore.Credit, error) {
	op := opOn(p, core.Peek, key)
	list, err := r.store.Credits(ctx, op.ID())
	return list, readableErr(err)
}

func (r *redisFleet) Grant(
	ctx context.Context, p policy.Policy, key string, units int64, until time.Time,
) (core.Decision, error) {
	op := opOn(p, core.Grant, key)
	op.Cost, op.CreditUntil = units, until.UnixMicro()
	return r.apply(ctx, op)
}

func (r *redisFleet) Revoke(ctx context.Context, p policy.Policy, key string) error {
	_, err := r.apply(ctx, opOn(p, core.Revoke, key))
	return err
}

func (r *redisFleet) Debit(ctx context.Context, p policy.Policy, key string, units int64) (core.Decision, error) {
	op := opOn(p, core.Debit, key)
	op.Cost = units
	return r.apply(ctx, op)
}

// opOn returns an operation on a key, with the limit that instances have for the key, and the
// windows of its calendar, without which Redis refuses most operations.
func opOn(p policy.Policy, verb core.Verb, key string) core.Op {
	now := time.Now()
	limit := p.LimitOf(key, now)
	return core.Op{Verb: verb, Rule: p.Name, Key: key, Limit: limit, Windows: limit.Windows(now.UnixMicro())}
}

func (r *redisFleet) apply(ctx context.Context, op core.Op) (core.Decision, error) {
	var out [1]core.Decision
	err := r.store.Apply(ctx, []core.Op{op}, out[:])
	return out[0], readableErr(err)
}

// readableErr returns an error about the value of a key as one that people can read, and every
// other error as it is.
func readableErr(err error) error {
	switch {
	case errors.Is(err, redisstore.ErrFormat):
		return mistake("key", "a newer version of headgate has written what Redis holds of it, in a format that this "+
			"console cannot read, so it is left as it is: upgrade the console, or finish the roll-back")
	case errors.Is(err, redisstore.ErrUnreadable):
		return mistake("key", "what Redis holds of it is no count, and expires within a minute")
	}
	return err
}

func (r *redisFleet) Published(ctx context.Context) (string, error) { return r.reports.Version(ctx) }
