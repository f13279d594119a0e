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

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
)

// DefaultInstancesTTL stands for a TTL of 0 in [InstancesOptions].
const DefaultInstancesTTL = 15 * time.Second

const (
	minInstancesTTL = 100 * time.Millisecond
	maxInstancesTTL = time.Hour
	maxInstances    = 1 << 20
)

// UnknownInstances is the number of instances while it is not known: so many that
// each admits one unit of a key, and none of a key that the primary has admitted there.
const UnknownInstances = maxInstances

// InstancesOptions configures [Instances].
type InstancesOptions struct {
	// Prefix begins the keys in use, <prefix>{instances} and <prefix>{instances}:parts. It
	// must not be empty or contain a brace. Give it the prefix of the store in Redis: the
	// instances that share counts are those to divide a limit among, and two services with
	// one prefix would each divide their limits by the instances of both in an outage.
	Prefix string

	// TTL is how long a silent instance counts as alive, from 100 ms to an hour;
	// 0 means DefaultInstancesTTL. Each instance sends at least fifteen heartbeats
	// in that time.
	TTL time.Duration

	// Expected is the number of instances until Redis has answered, at most
	// 1<<20: the most that are alive at a time, with those that a roll-out adds.
	// 0 means UnknownInstances: an instance that starts while Redis is away then
	// admits one unit of a key, because it cannot know how many others do.
	Expected int

	// Logger receives a record when Redis has not answered the first heartbeat, or none
	// for a TTL, and when it answers again. nil means slog.Default() at the time.
	Logger *slog.Logger
}

// Instances counts the instances of a program that are alive, by heartbeats in Redis and
// in its own time, and says by how many this one divides the limits. It is safe for
// concurrent use.
//
// The count rises at once and falls only when it has been lower for a whole
// TTL, because a Redis that has lost its data hears from all instances in that
// time. While Redis is unavailable the last number stands.
//
// Redis also keeps by how many each instance divides, and grants a newcomer only what the
// others leave. The others learn of it with their next heartbeat, and it has its part
// with the one that follows: within a sixth of the TTL.
type Instances struct {
	client redis.UniversalClient
	calls  *rediscall.Caller
	prefix string
	key    string
	id     string
	ttl    time.Duration
	log    *slog.Logger
	live   atomic.Int64

	// The rest belongs to the goroutine.

	count    int64     // the number of instances, which falls late; 0 before the first heartbeat has ended
	lower    time.Time // since when Redis has counted fewer; zero if it does not
	max      int64     // the most since then
	answered bool      // Redis has answered once
	failing  time.Time // since when heartbeats fail; zero if the last was answered
	warned   bool      // the log says that they fail

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
		count: int64(o.Expected), done: make(chan struct{}),
	}
	i.live.Store(int64(cmp.Or(o.Expected, UnknownInstances)))
	ctx, end := context.WithCancel(context.Background())
	i.end = end
	go i.run(ctx)
	return i, nil
}

func (i *InstancesOptions) faults(client redis.UniversalClient) error {
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("failover: the client is nil"))
	}
	if i.Prefix == "" {
		errs = append(errs, errors.New("failover: the prefix of instances is empty: "+
			`give that of the store in Redis, such as "shop:"`))
	}

	// The braces are the hash tag, by which a Cluster keeps the instances on one shard.
	if strings.ContainsAny(i.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("failover: the prefix %q of instances holds a brace", i.Prefix))
	}

	if i.TTL != 0 && (i.TTL < minInstancesTTL || i.TTL > maxInstancesTTL) {
		errs = append(errs, fmt.Errorf("failover: the TTL %v of instances is neither 0 nor within %v to %v",
			i.TTL, minInstancesTTL, maxInstancesTTL))
	}
	if i.Expected < 0 || i.Expected > maxInstances {
		errs = append(errs, fmt.Errorf("failover: %d expected instances are not within 0 to %d",
			i.Expected, maxInstances))
	}
	return errors.Join(errs...)
}

// Live returns the number by which this instance divides limits, at least 1: the number of
// instances that are alive, or a higher one. Until Redis has answered, that is Expected or
// UnknownInstances.
//
// Over the instances that Redis counts, the inverses of this number add up to at most 1 at
// any time, whether or not Redis goes on answering, and however many are added. Those with
// UnknownInstances are not in that sum, because each admits one unit of a key. They are
//
//   - a newcomer, until the others have made room for it: a sixth of the TTL, or until a
//     TTL after the last heartbeat of one that has died without Close or lost Redis;
//   - an instance that comes back to Redis after a TTL, likewise;
//   - an instance that began while Redis was away, without Expected, for a TTL and two
//     heartbeats after the first answer.
//
// A Redis that has lost its data, or that has not heard from an instance for a TTL, counts
// the instance again with its next heartbeat. Until then it goes on beside that sum.
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
	every := i.ttl / 15
	for {
		used := i.live.Load()
		a, err := i.beat(ctx, i.ttl)
		if ctx.Err() == nil {
			i.hear(ctx, time.Now(), a, err)
		}

		pause := every*3/4 + rand.N(every/4)
		if i.live.Load() > used {
			pause = every / 8 // to say soon that this part is smaller, for which a newcomer waits
		}
		timer := time.NewTimer(pause)
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
var beatText string

var beatScript = redis.NewScript(beatText)

// answer is what Redis replies to a heartbeat.
type answer struct {
	count  int64 // the instances that are alive
	number int64 // by which this one may divide limits
}

// beat reports that the instance is alive for ttl, or that it leaves if ttl is 0.
func (i *Instances) beat(ctx context.Context, ttl time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, min(time.Second, i.ttl/3))
	defer cancel()
	return i.beatWithin(ctx, ttl)
}

// beatWithin is beat for as long as ctx lasts.
func (i *Instances) beatWithin(ctx context.Context, ttl time.Duration) (answer, error) {
	reply, err := i.send(ctx, "evalsha", beatScript.Hash(), ttl)
	var refusal redis.Error
	if errors.As(err, &refusal) {
		reply, err = i.send(ctx, "eval", beatText, ttl) // Redis may not have the script
	}
	if err != nil {
		return answer{}, err
	}
	if len(reply) != 2 {
		return answer{}, fmt.Errorf("failover: Redis replied %v to a heartbeat", reply)
	}
	return answer{count: max(1, reply[0]), number: min(max(1, reply[1]), UnknownInstances)}, nil
}

// send sends a heartbeat once.
func (i *Instances) send(ctx context.Context, command, script string, ttl time.Duration) ([]int64, error) {
	cmd := rediscall.Ints{IntSliceCmd: redis.NewIntSliceCmd(ctx, command, script, 2, i.key, i.key+":parts",
		i.id, ttl.Milliseconds(), i.live.Load(), max(1, i.count))}
	cmd.SetFirstKeyPos(3)
	err := i.calls.Do(ctx, func(ctx context.Context) error { return i.client.Process(ctx, cmd) })
	if err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// trial tries the commands of a heartbeat.
var trial = rediscall.Trial("time", "zrevrangebyscore", "zrem", "zadd", "zcard", "pexpire")

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

// hear processes the end of a heartbeat at an instant.
func (i *Instances) hear(ctx context.Context, now time.Time, a answer, err error) {
	if err != nil {
		i.fail(ctx, now, err)
		return
	}

	if i.warned {
		i.logger().Info("headgate: instances are counted again")
	}
	i.answered, i.failing, i.warned = true, time.Time{}, false
	i.weigh(now, a.count)
	i.live.Store(a.number)
}

// weigh processes how many instances Redis has counted at an instant.
func (i *Instances) weigh(now time.Time, n int64) {
	switch {
	case n >= i.count:
		i.count, i.lower = n, time.Time{}
	case i.lower.IsZero():
		i.lower, i.max = now, n
	default:
		i.max = max(i.max, n)
		if now.Sub(i.lower) >= i.ttl {
			i.count, i.lower = i.max, time.Time{}
		}
	}
}

// fail processes a heartbeat that failed. The log says so at once if Redis has never
// answered, and otherwise after a TTL, when the others cease to count this instance.
func (i *Instances) fail(ctx context.Context, now time.Time, err error) {
	i.lower = time.Time{} // the low number may have risen since
	if i.count == 0 {
		i.count = UnknownInstances // when Redis is back, it may not know of the others yet
	}
	if i.failing.IsZero() {
		i.failing = now
	}
	if i.warned || i.answered && now.Sub(i.failing) < i.ttl {
		return
	}

	i.warned = true
	err = i.explain(ctx, err)
	if i.live.Load() == UnknownInstances {
		i.logger().Warn("headgate: instances cannot be counted yet, so each admits one unit of a key "+
			"while Redis is away: set Expected to the number of instances", "error", err.Error())
		return
	}
	i.logger().Warn("headgate: instances cannot be counted, and their last number stays",
		"instances", i.Live(), "error", err.Error())
}

func (i *Instances) logger() *slog.Logger {
	if i.log != nil {
		return i.log
	}
	return slog.Default()
}
