package managed

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/policy/stats"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
)

// StackOptions configure [OpenStack]. Apps must be set.
type StackOptions struct {
	// Apps are the applications that the process serves, which share the store.
	Apps []string

	// Store configures the store in Redis. Store.Prefix begins the keys of all parts; ""
	// means redisstore.DefaultPrefix.
	Store redisstore.Options

	// Memory configures the fallback, which decides while Redis is away.
	Memory memstore.Options

	// Expected is the number of instances until Redis has answered, as of
	// failover.InstancesOptions.
	Expected int

	// Clock returns the time of this process; nil means time.Now.
	Clock func() time.Time

	// Logger is that of all parts, except that Memory.Logger takes precedence for the
	// fallback. nil means slog.Default() at the time.
	Logger *slog.Logger
}

// Stack is a store in Redis that all instances share, with its fallback in memory, and what
// counts the instances and the outcomes of applications under the keys that services of one
// prefix have in common. It is for programs with several limiters; [Open] has one by itself.
type Stack struct {
	// Store decides.
	Store *failover.Store

	recorders map[string]*stats.Recorder // by application
	instances []*failover.Instances      // one for each application
	closers   []io.Closer                // in the order in which they were opened
}

// OpenStack opens the parts of a store that the applications share. The caller must call
// Close. It does not close the client, whose options should set ContextTimeoutEnabled.
func OpenStack(client redis.UniversalClient, o StackOptions) (*Stack, error) {
	o.Store.Prefix = cmp.Or(o.Store.Prefix, redisstore.DefaultPrefix)
	if o.Memory.Logger == nil {
		o.Memory.Logger = o.Logger
	}

	s := &Stack{recorders: map[string]*stats.Recorder{}}
	if err := s.open(client, &o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stack) open(client redis.UniversalClient, o *StackOptions) error {
	// The store adds a hook to the client, which nothing else may use meanwhile. So it comes before
	// the counts, whose goroutines send at once.
	primary, err := redisstore.New(client, o.Store)
	if err != nil {
		return err
	}
	for _, app := range o.Apps {
		if err := s.count(app, client, o); err != nil {
			return err
		}
	}

	memory, err := memstore.New(o.Memory)
	if err != nil {
		return err
	}

	// An error about the value of one key is no reason to bypass Redis for all others.
	s.Store, err = failover.New(primary, failover.Options{
		Fallback: memory, Instances: s.live, Ignore: aboutKey, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, s.Store)
	return nil
}

// count begins to count the outcomes and the instances of an application.
func (s *Stack) count(app string, client redis.UniversalClient, o *StackOptions) error {
	recorder, err := stats.New(client, stats.Options{
		App: app, Prefix: o.Store.Prefix, Clock: o.Clock, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	s.recorders[app] = recorder
	s.closers = append(s.closers, recorder)

	// The instances of each application are counted apart, as its limits are shared among them
	// alone.
	instances, err := failover.NewInstances(client, failover.InstancesOptions{
		Prefix: o.Store.Prefix + app + ":", Expected: o.Expected, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	s.instances = append(s.instances, instances)
	s.closers = append(s.closers, instances)
	return nil
}

// Recorder returns what counts the outcomes of an application, to observe its limiters, or nil
// if the application is none of StackOptions.Apps.
func (s *Stack) Recorder(app string) *stats.Recorder { return s.recorders[app] }

// live returns the number of instances that share a limit, of the application that has the
// most. The store does not know which application a key is of, and a larger number makes
// smaller parts.
func (s *Stack) live() int {
	n := 0
	for _, i := range s.instances {
		n = max(n, i.Live())
	}
	return n
}

// aboutKey reports whether an error is about the value of a key, and says nothing about Redis.
func aboutKey(err error) bool {
	return errors.Is(err, redisstore.ErrUnreadable) || errors.Is(err, redisstore.ErrFormat)
}

// Close ends all parts, the last opened first, and writes the last counts. It returns the
// errors of that, and may be called again.
func (s *Stack) Close() error {
	err := closeAll(s.closers)
	s.closers = nil
	return err
}

// closeAll closes all, the last one first.
func closeAll(closers []io.Closer) error {
	var errs []error
	for i := len(closers) - 1; i >= 0; i-- {
		errs = append(errs, closers[i].Close())
	}
	return errors.Join(errs...)
}
