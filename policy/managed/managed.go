// Package managed opens a limiter whose policies are published in Redis, as the management page
// does, or come from another source, together with all that it needs.
//
//	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
//	limits, err := managed.Open(ctx, client, managed.Options{App: "shop"})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer limits.Close()
//	handler := nethttp.New(limits.Limiter)(mux)
//
// [Open] returns [Limits], which has the Limiter, and [Options] say the application and whatever
// differs from the defaults. The parts are
//
//   - a store in Redis that all instances share, and a memory that decides while Redis
//     is away, in which each instance admits its part of every limit
//   - the follower of the policies
//   - the counts that the page shows
//
// A program with several limiters over one store has [OpenStack]. A service that needs other parts
// can put them together itself, with the packages that this one imports.
package managed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
)

// Options configure [Open]. App must be set.
type Options struct {
	// App is the application whose policies apply.
	App string

	// Source has the policies. nil means those that are published in Redis, as the
	// management page does. With a file instead, the counts and the fallback stay those of
	// all instances.
	Source policy.Source

	// Bindings hold what policies cannot say, such as the user of a request.
	Bindings policy.Bindings

	// Follow configures the follower.
	Follow policy.Options

	// Store configures the store in Redis. Store.Prefix begins the keys of all
	// parts; "" means redisstore.DefaultPrefix.
	Store redisstore.Options

	// Expected is the number of instances until Redis has answered, as of
	// failover.InstancesOptions. With 0, an instance that starts while Redis is
	// away admits one unit of a key.
	Expected int

	// Clock returns the time of this process; nil means time.Now. Reports say how far it is
	// off the clock of Redis, by which everything is counted.
	Clock func() time.Time

	// Limiter configures the limiter. Its Store must be nil. Its Rules apply until
	// there are policies. Its Logger is also that of the other parts, except that
	// Follow.Logger takes precedence for the follower.
	//
	// With a Limiter.Top, such as 20, the page shows which keys each policy refuses and
	// admits most often. It is 0 by default, because keys such as the addresses of people
	// then leave the process, and because each policy takes memory for it.
	Limiter limiter.Config
}

// Limits is a limiter that follows policies, with its parts. The caller must call
// Close.
type Limits struct {
	// Limiter decides. An adapter takes it.
	Limiter *limiter.Limiter

	// Follower keeps the rules of the limiter equal to the policies.
	Follower *policy.Follower

	closers []io.Closer // in the order in which they were opened
}

// Open puts the policies that are published for the application in force, as
// [policy.Follow] does with Options.Follow, and returns the limiter that follows them
// until Close or until ctx ends. It does not close the client, whose options should
// set ContextTimeoutEnabled. The error names every mistake in the options.
func Open(ctx context.Context, client redis.UniversalClient, o Options) (*Limits, error) {
	if err := o.faults(client); err != nil {
		return nil, err
	}

	o.Follow.Instance = cmp.Or(o.Follow.Instance, policy.NewInstance())
	if o.Follow.Logger == nil {
		o.Follow.Logger = o.Limiter.Logger
	}

	// What was opened before a failure is closed again.
	l := &Limits{}
	if err := l.open(ctx, client, &o); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// faults returns an error that names every mistake in the options.
func (o *Options) faults(client redis.UniversalClient) error {
	var errs []error
	if err := policy.CheckApp(o.App); err != nil {
		errs = append(errs, fmt.Errorf("managed: Options.App: %w", err))
	}
	if o.Limiter.Store != nil {
		errs = append(errs, errors.New("managed: Options.Limiter.Store is not nil, but the store is in Redis"))
	}
	if o.Expected < 0 || o.Expected > failover.UnknownInstances {
		errs = append(errs, fmt.Errorf("managed: Options.Expected: %d is not within 0 to %d", o.Expected,
			failover.UnknownInstances))
	}

	// These packages check their own options. Nothing is connected yet.
	_, err := redisstore.New(client, o.Store)
	errs = append(errs, err, o.Bindings.Validate(), o.Follow.Validate(), o.limiterFaults())
	return errors.Join(errs...)
}

// limiterFaults tries the limiter's options on a store of the same kind in memory.
func (o *Options) limiterFaults() error {
	store := failover.MustNew(memstore.MustNew(memstore.Options{}),
		failover.Options{Fallback: memstore.MustNew(memstore.Options{})})
	defer store.Close()
	config := o.Limiter
	config.Store = store
	_, err := limiter.New(config)
	return err
}

func (l *Limits) open(ctx context.Context, client redis.UniversalClient, o *Options) error {
	if o.Source == nil {
		published, err := redissource.New(client, redissource.Options{
			Prefix: cmp.Or(o.Store.Prefix, redisstore.DefaultPrefix), Clock: o.Clock,
		})
		if err != nil {
			return err
		}
		o.Source = published
	}

	// The policies of one prefix have different names, so their counts are apart.
	stack, err := OpenStack(client, StackOptions{
		Apps: []string{o.App}, Store: o.Store, Expected: o.Expected, Clock: o.Clock, Logger: o.Limiter.Logger,
	})
	if err != nil {
		return err
	}
	l.closers = append(l.closers, stack)

	recorder := stack.Recorder(o.App)
	o.Limiter.Store, o.Limiter.Observer = stack.Store, events.Join(recorder, o.Limiter.Observer)
	if l.Limiter, err = limiter.New(o.Limiter); err != nil {
		return err
	}
	l.closers = append(l.closers, l.Limiter)
	if o.Limiter.Top > 0 {
		recorder.PublishTop(l.Limiter.TopKeys)
	}

	if l.Follower, err = policy.Follow(ctx, l.Limiter, o.App, o.Bindings, o.Source, o.Follow); err != nil {
		return err
	}
	l.closers = append(l.closers, l.Follower)
	return nil
}

// Close ends all parts, the last opened first. The policies are followed no longer,
// waiting requests are refused, and the last counts are written. It returns the error
// of that write, and may be called again.
func (l *Limits) Close() error {
	err := closeAll(l.closers)
	l.closers = nil
	return err
}
