package failover

import (
	"cmp"
	"context"
	crand "crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/redis/go-redis/v9"
)

// DefaultInstancesTTL stands for a TTL of 0 in [InstancesOptions].
const DefaultInstancesTTL = 15 * time.Second

const (
	minInstancesTTL = 100 * time.Millisecond
	maxInstancesTTL = time.Hour
	maxInstances    = 1 << 20
)

// UnknownInstances is the number of instances while it is not known: so many that
// the parts of any fleet are within the limit.
const UnknownInstances = maxInstances

// InstancesOptions configures [Instances].
type InstancesOptions struct {
	// Prefix begins the only key in use, <prefix>{instances}. It must not be empty or
	// contain a brace. Give it the prefix of the store in Redis: the instances that
	// share counts are those to divide a limit among, and two services with one
	// prefix would each divide their limits by the instances of both in an outage.
	Prefix string

	// TTL is how long a silent instance counts as alive, from 100 ms to an hour;
	// 0 means DefaultInstancesTTL. Each instance sends at least three heartbeats
	// in that time.
	TTL time.Duration

	// Expected is the number of instances until Redis has answered, at most
	// 1<<20: the most that are alive at a time, with those that a roll-out adds.
	// 0 means UnknownInstances: an instance that starts while Redis is away then
	// admits one unit of a key, because it cannot know how many others do.
	Expected int

	// Logger receives a record when Redis ceases to answer and when it answers
	// again. nil means slog.Default() at the time.
	Logger *slog.Logger
}

// Instances counts the instances of a program that are alive, by heartbeats in
// a sorted set of one key, in Redis's own time. It is safe for concurrent use.
//
// The number rises at once and falls only when it has been lower for a whole
// TTL, because a Redis that has lost its data hears from all instances in that
// time. While Redis is unavailable the last number stands. A new instance is known
// to the others within a third of the TTL.
type Instances struct {
	client redis.UniversalClient
	calls  *rediscall.Caller
	prefix string
	key    string
	id     string
	ttl    time.Duration
	log    *slog.Logger
	live   atomic.Int64

	silent bool      // the last heartbeat failed
	lower  time.Time // since when the number has been lower; zero if it is not
	max    int64     // the highest since then

	end  context.CancelFunc
	done chan struct{}
}

// NewInstances starts to count, this instance included, in a goroutine that
// ends with Close. It does not wait for Redis. The error names every mistake in
// the options.
func NewInstances(client redis.UniversalClient, o InstancesOptions) (*Instances, error) {
	if err := o.faults(client); err != nil {
		return nil, err
	}
	var id [16]byte
	_, _ = crand.Read(id[:]) // never fails, as its contract says
	i := &Instances{
		client: client, calls: rediscall.NewCaller(client), id: hex.EncodeToString(id[:]), log: o.Logger,
		prefix: o.Prefix, key: o.Prefix + "{instances}", ttl: cmp.Or(o.TTL, DefaultInstancesTTL),
		done: make(chan struct{}),
	}
	i.live.Store(int64(cmp.Or(o.Expected, UnknownInstances)))
	ctx, end := context.WithCancel(context.Background())
	i.end = end
	go i.run(ctx)
	return i, nil
}

func (o *InstancesOptions) faults(client redis.UniversalClient) error {
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("failover: the client is nil"))
	}
	if o.Prefix == "" {
		errs = append(errs, errors.New(`failover: the prefix of instances is empty: give that of the store in Redis, such as "shop:"`))
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("failover: the prefix %q of instances holds a brace", o.Prefix))
	}
	if o.TTL != 0 && (o.TTL < minInstancesTTL || o.TTL > maxInstancesTTL) {
		errs = append(errs, fmt.Errorf("failover: the TTL %v of instances is neither 0 nor within %v to %v",
			o.TTL, minInstancesTTL, maxInstancesTTL))
	}
	if o.Expected < 0 || o.Expected > maxInstances {
		errs = append(errs, fmt.Errorf("failover: %d expected instances are not within 0 to %d", o.Expected, maxInstances))
	}
	return errors.Join(errs...)
}

// Live returns the number of instances that are alive, at least 1. Until Redis has
// answered, that is Expected or UnknownInstances.
func (i *Instances) Live() int { return int(i.live.Load()) }

// Close ends the count and removes this instance from it, if Redis answers
// within a second. It may be called again and always returns nil.
func (i *Instances) Close() error {
	i.end()
	<-i.done
	return nil
}

func (i *Instances) run(ctx context.Context) {
	defer close(i.done)
	every := i.ttl / 3
	for {
		n, err := i.beat(ctx, i.ttl)
		if err != nil && !i.silent {
			err = i.explain(ctx, err)
		}
		if ctx.Err() == nil {
			i.hear(time.Now(), n, err)
		}
		timer := time.NewTimer(every*3/4 + rand.N(every/4))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			_, _ = i.beat(context.WithoutCancel(ctx), 0) // best effort: the others notice after a TTL anyway
			return
		}
	}
}

//go:embed instances.lua
var beatScript string

// beat reports that the instance is alive for ttl, or that it leaves if ttl is
// 0. It returns the number of instances.
func (i *Instances) beat(ctx context.Context, ttl time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, min(time.Second, i.ttl/3))
	defer cancel()
	cmd := rediscall.Reply{Cmd: redis.NewCmd(ctx, "eval", beatScript, 1, i.key, i.id, ttl.Milliseconds())}
	cmd.SetFirstKeyPos(3)
	err := i.calls.Do(ctx, func(ctx context.Context) error { return i.client.Process(ctx, cmd) })
	if err != nil {
		return 0, err
	}
	return cmd.Int64()
}

// trial tries the commands of a heartbeat.
var trial = rediscall.Trial("time", "zremrangebyscore", "zadd", "pexpire", "zrem", "zcard")

// trialKey is the name, after the prefix, of a key that is never used.
const trialKey = "{instances}:"

// explain adds to the error of a denied permission which commands the user may not run,
// and the command that permits them. The error of a script does not name them.
func (i *Instances) explain(ctx context.Context, err error) error {
	if !rediscall.Forbids(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, min(time.Second, i.ttl/3))
	defer cancel()
	q := rediscall.Strings{StringSliceCmd: redis.NewStringSliceCmd(ctx, "eval", trial, 0, i.prefix+trialKey)}
	q.SetFirstKeyPos(3) // for a Cluster: the server of the heartbeats
	lacking := []string{"eval"}
	if tried := i.calls.Do(ctx, func(ctx context.Context) error { return i.client.Process(ctx, q) }); tried == nil {
		lacking = q.Val()
	}
	return fmt.Errorf("failover: the Redis user may not run %s on %s: %w; %s",
		strings.Join(lacking, ", "), i.key, err, rediscall.Remedy(i.client, i.prefix))
}

// hear processes the answer to a heartbeat.
func (i *Instances) hear(now time.Time, n int64, err error) {
	if silent := err != nil; silent != i.silent {
		i.silent = silent
		i.announce(err)
	}
	if err != nil {
		i.lower = time.Time{} // the low number may have risen since
		return
	}
	live := i.live.Load()
	switch n = max(1, n); {
	case n >= live, live == UnknownInstances:
		i.live.Store(n)
		i.lower = time.Time{}
	case i.lower.IsZero():
		i.lower, i.max = now, n
	default:
		i.max = max(i.max, n)
		if now.Sub(i.lower) >= i.ttl {
			i.live.Store(i.max)
			i.lower = time.Time{}
		}
	}
}

func (i *Instances) announce(err error) {
	log := i.log
	if log == nil {
		log = slog.Default()
	}
	switch {
	case err != nil && i.live.Load() == UnknownInstances:
		log.Warn("headgate: instances cannot be counted yet, so each admits one unit of a key while Redis is away: "+
			"set Expected to the number of instances", "error", err.Error())
		return
	case err != nil:
		log.Warn("headgate: instances cannot be counted, and their last number stays", "instances", i.Live(), "error", err.Error())
		return
	}
	log.Info("headgate: instances are counted again")
}
