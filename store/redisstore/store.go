package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/failover"
)

// Store is a core.Store in Redis. It is safe for concurrent use. It does not
// own the client, which the caller closes.
type Store struct {
	client  redis.UniversalClient
	unnamed bool // no prefix was given

	wire       wire
	topology   topology
	servers    servers
	connector  connector
	link       link
	notifier   notifier
	dispatcher dispatcher

	refusals *refusalCache // nil if no refusals are cached
	notes    limitNotes
	bans     banList
	back     backing
}

// stock holds the scripts of all stores.
var stock lua.Scripts

// New returns a store that uses the client. It does not connect. The error
// names every mistake in the options.
//
// The store adds a hook to the client, which wraps the connections that it dials from then on.
// A go-redis before v9.22 must not be in use by other goroutines meanwhile.
//
// Set ContextTimeoutEnabled in the client's options. Without it the client
// ignores deadlines, and each call needs another goroutine to end in time. So
// does each call over TLS unless Protocol is 2. If a Dialer speaks TLS, set
// TLSConfig too, so that the store can detect TLS.
func New(client redis.UniversalClient, o Options) (*Store, error) {
	if client == nil {
		return nil, errors.Join(errNoClient, o.check())
	}
	if err := o.check(); err != nil {
		return nil, err
	}

	traits := traitsOf(client)
	s := &Store{
		client: client, unnamed: o.Prefix == "",
		back: backing{expected: o.Instances, memoryKeys: o.MemoryKeys, log: o.Logger},
	}

	// The parts are set up in this order because each uses those before it.
	w := &s.wire
	w.prefix, w.oneSlot, w.secret, w.clock = cmp.Or(o.Prefix, DefaultPrefix), o.OneSlot, o.Secret, o.Clock
	w.scripts, w.shared, w.scratches.New = &stock, shares(client, o), newScratch

	s.topology.client, s.topology.wire = client, w

	v := &s.servers
	v.topology, v.sharded = &s.topology, traits.Sharded
	v.fixed, v.most = o.Timeout, max(DefaultTimeout, cmp.Or(o.MaxTimeout, DefaultMaxTimeout))
	v.single.init(v.fixed, v.most)
	patience{v.budget, new(parkingLot)}.addTo(client)

	c := &s.connector
	c.client, c.topology, c.servers, c.ignoresDeadline = client, &s.topology, v, traits.IgnoresDeadlines
	c.ready.Store(maxFull)
	if c.ignoresDeadline {
		c.ready.Store(maxBatches + maxGaps) // the client connects by itself
	}
	c.dials.init(client)
	c.doors.to = map[string]*door{}

	l := &s.link
	l.client, l.prefix, l.send = client, w.prefix, client.Process
	if !traits.HeedsDeadlines {
		l.send = l.sendInBackground
	}
	l.topology, l.servers, l.connector = &s.topology, v, c

	d := &s.dispatcher
	d.wire, d.servers, d.connector, d.link, d.notifier = w, v, c, l, &s.notifier
	d.queue.maxOps, d.queue.serve = cmp.Or(o.Batch, DefaultBatch), d.serve
	d.made = time.Now()
	d.waiters.New, d.batches.New = newWaiter, newBatch
	d.overflow = newRefusalCache(maxRemembered, o.Clock)

	s.bans.client, s.bans.wire, s.bans.servers, s.bans.link = client, w, v, l
	if o.CacheRefusals > 0 {
		s.refusals = newRefusalCache(o.CacheRefusals, o.Clock)
	}
	return s, nil
}

// NewWithClient is [New] for a client that is not one of go-redis's. The client sends no command
// again by itself, and its connections heed deadlines.
func NewWithClient(client Client, o Options) (*Store, error) {
	if client == nil {
		return nil, errors.Join(errNoClient, o.check())
	}
	return New(&foreign{own: client}, o)
}

// MustNew is [New] for arguments that are known to be valid; it panics on an
// error.
func MustNew(client redis.UniversalClient, o Options) *Store {
	s, err := New(client, o)
	if err != nil {
		panic(err)
	}
	return s
}

// Apply implements [core.Store].
func (s *Store) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	_, err := s.ApplyCopied(ctx, ops, out, nil)
	return err
}

// ApplyCopied is [Store.Apply] for a failover.Store, of which c is a part, or nil. If the step is
// decided together with others by one call, it gives the decisions of all of them to c, before it
// returns any. It returns whether c has copied those of this step.
func (s *Store) ApplyCopied(ctx context.Context, ops []core.Op, out []core.Decision,
	c failover.Copier) (copied bool, err error) {

	if err := core.CheckOps(ops, out); err != nil {
		return false, err
	}
	for i := range ops {
		if _, err := s.wire.limits.termsOf(&ops[i]); err != nil {
			return false, err
		}
	}

	if len(ops) == 0 {
		return false, nil
	}

	if err := ctx.Err(); err != nil {
		return false, unsent(ownTime(err))
	}

	if s.refusals == nil {
		return s.carryOut(ctx, ops, out, c)
	}
	return s.carryOutCached(ctx, ops, out, c)
}

// carryOutCached decides the step from the cache of refusals, or has Redis decide it and caches
// what that refuses. It is apart, as the tickets would make the stack of every caller larger.
func (s *Store) carryOutCached(ctx context.Context, ops []core.Op, out []core.Decision,
	c failover.Copier) (copied bool, err error) {

	var q tickets
	s.refusals.beforeStep(&q, ops)
	if s.refusals.answer(&q, ops, out) {
		s.notifier.notifyCached(&ops[0])
		return false, nil
	}

	copied, err = s.carryOut(ctx, ops, out, c)
	s.refusals.afterStep(&q, ops, out, err)
	return copied, err
}

// carryOut has Redis decide the step.
func (s *Store) carryOut(ctx context.Context, ops []core.Op, out []core.Decision,
	c failover.Copier) (copied bool, err error) {

	// The operations are still in the processor's cache here, and not after the wait.
	returns := anyReturnsUnits(ops)

	if s.servers.sharded && !s.wire.oneSlot && severalSubjects(ops) {
		ctx, cancel := context.WithTimeout(ctx, s.servers.budget())
		defer cancel()
		err = s.dispatcher.applyBySubject(ctx, ops, out)
	} else {
		copied, err = s.dispatcher.decide(ctx, ops, out, c)
	}

	// A step that failed may have changed its keys too.
	if returns {
		s.dispatcher.overflow.forgetChanged(ops)
	}
	if err == nil {
		s.bans.meet(ops, out)
	}
	return copied, err
}

// maxSmall is the largest number of records in a state that is written although the
// memory of the server is full. They take 448 bytes in a log and 1472 as leases.
const maxSmall = 64

var _ core.Sharded = (*Store)(nil)

// Shards implements [core.Sharded]. In a Cluster or Ring the name of a shard is the address of
// the server that has the key, in the table that the client has. In a Cluster that is "" until a
// server has answered.
func (s *Store) Shards() (shardOf func(key string) string) {
	if !s.servers.sharded {
		return nil
	}
	return s.topology.shard
}

// Credits returns the credit of a key, in the order of its ends, of a moment: requests take from it
// meanwhile. Decision.Credit is the sum of it, and decisions say no more, as most keys have none. A
// key of which that is 0 needs no call of Credits. The error of a key whose state is of a later
// format wraps [ErrFormat].
func (s *Store) Credits(ctx context.Context, id core.ID) ([]Credit, error) {
	ctx, cancel := context.WithTimeout(ctx, s.servers.reach())
	defer cancel()
	key := string(s.wire.key(nil, id.Key, id.Rule, id.Algorithm.Letter()))
	state := redis.NewStringCmd(ctx, "get", key)

	now, err := s.bans.now(ctx)
	if err == nil {
		err = s.client.Process(ctx, state)
	}
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err == nil:
		err = laterFormat(state.Val())
	default:
		err = s.bans.link.explain(err)
	}
	if err != nil {
		return nil, fmt.Errorf("redisstore: credits: rule %q: %w", id.Rule, err)
	}
	return credits(state.Val(), now), nil
}

var _ events.Reporter = (*Store)(nil)

// Report implements [events.Reporter]. MaxCall is the Timeout or MaxTimeout of the Options.
//
// Diagnose reports a store without a prefix, rules whose counts are also under other limits, a
// client that ignores deadlines, a user without a necessary permission on any server, or without
// one that lists of bans need if a rule has a Ban, and servers that may evict keys when their
// memory is full, which loses counts. A server that does not answer, or does not let the client
// in, is asked again.
//
// Bans finds the bans that were imposed, or have refused a request since they began, at most
// 10,000 of all rules, and none of a key above 1 KiB. If one of these keys has a state of a later
// format, the error wraps [ErrFormat]. A ban is listed a moment later, if the Redis user may run
// the commands that docs/bans.md names.
func (s *Store) Report() events.Report {
	return events.Report{
		MaxCall: s.servers.maxCall(), Diagnose: s.diagnose, Bans: s.bans.bans, Listen: s.notifier.listeners.Add,
		Status: func(list []events.StoreStatus) []events.StoreStatus {
			return append(list, events.StoreStatus{
				Store: "redis", Of: s, Servers: serversOf(s.client), CachedRefusals: s.notifier.cached.Load(),
			})
		},
	}
}
