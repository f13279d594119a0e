// This file opens the store and the source of policies.

package engine

import (
	"context"
	"errors"
	"io"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/filesource"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/policy/stats"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
)

// shared is what the gateway has in Redis. nil has nothing.
type shared struct {
	client    redis.UniversalClient
	instances []*failover.Instances      // one for each application
	recorders map[string]*stats.Recorder // by application
	parts     []io.Closer                // in the order in which they were opened
}

// openStore opens the store in memory, or in Redis with its fallback in memory.
func (e *Engine) openStore() error {
	memory, err := memstore.New(memstore.Options{MaxKeys: e.options.MaxKeys, MaxBytes: e.options.MaxBytes, Logger: e.logger})
	if err != nil {
		return err
	}
	if e.options.Redis == nil {
		e.store = memory
		return nil
	}
	e.shared = &shared{client: redis.NewUniversalClient(clientOptions(e.options.Redis)), recorders: map[string]*stats.Recorder{}}
	e.shared.parts = append(e.shared.parts, e.shared.client)
	if e.options.Check {
		e.store = memory
		return nil
	}
	for _, app := range e.options.Apps {
		if err := e.shared.add(app, e); err != nil {
			return err
		}
	}
	primary, err := redisstore.New(e.shared.client, redisstore.Options{
		Prefix: e.options.RedisPrefix, Timeout: e.options.Timeout, CacheRefusals: e.options.CacheRefusals,
	})
	if err != nil {
		return err
	}
	store, err := failover.New(primary, failover.Options{
		Fallback: memory, Instances: e.shared.live, Ignore: aboutKey, Logger: e.logger,
	})
	if err != nil {
		return err
	}
	e.shared.parts = append(e.shared.parts, store)
	e.store = store
	return nil
}

// aboutKey reports whether an error is about the value of a key, and says nothing about Redis.
func aboutKey(err error) bool {
	return errors.Is(err, redisstore.ErrUnreadable) || errors.Is(err, redisstore.ErrFormat)
}

// clientOptions returns the options with what the store needs: calls that end at their
// deadline, without a goroutine more for each, over TLS too.
func clientOptions(o *redis.UniversalOptions) *redis.UniversalOptions {
	c := *o
	c.ContextTimeoutEnabled = true
	if c.TLSConfig != nil {
		c.Protocol = 2
	}
	return &c
}

// add starts to count the instances and the outcomes of an application, under the keys
// that services have which follow the policies of the application themselves.
func (s *shared) add(app string, e *Engine) error {
	instances, err := failover.NewInstances(s.client, failover.InstancesOptions{
		Prefix: e.options.RedisPrefix + app + ":", Expected: e.options.Expected, Logger: e.logger,
	})
	if err != nil {
		return err
	}
	s.instances = append(s.instances, instances)
	s.parts = append(s.parts, instances)
	recorder, err := stats.New(s.client, stats.Options{
		App: app, Prefix: e.options.RedisPrefix, Logger: e.logger,
	})
	if err != nil {
		return err
	}
	s.recorders[app] = recorder
	s.parts = append(s.parts, lastCounts{recorder, e})
	return nil
}

// lastCounts closes a recorder. That its last counts could not be written is no error of
// the gateway, which may end while Redis is away.
type lastCounts struct {
	*stats.Recorder
	e *Engine
}

// Close implements io.Closer.
func (c lastCounts) Close() error {
	if err := c.Recorder.Close(); err != nil {
		c.e.logger.Warn("the last counts for the management page were not written", "error", err)
	}
	return nil
}

// live returns the number of instances that share a limit, of the application that has
// the most. The store does not know which application a key is of, and a larger number
// makes smaller parts.
func (s *shared) live() int {
	n := 0
	for _, i := range s.instances {
		n = max(n, i.Live())
	}
	return n
}

// observer returns what counts the outcomes of an application, or nil.
func (s *shared) observer(app string) events.Observer {
	if s == nil || s.recorders[app] == nil {
		return nil
	}
	return s.recorders[app]
}

// close closes all parts, the last opened first.
func (s *shared) close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for i := len(s.parts) - 1; i >= 0; i-- {
		errs = append(errs, s.parts[i].Close())
	}
	return errors.Join(errs...)
}

// openSource returns the source of the policies.
func (e *Engine) openSource() (policy.Source, error) {
	switch {
	case e.options.Source != nil:
		return e.options.Source, nil
	case e.options.Policies != "":
		return filesource.New(e.options.Policies)
	}
	source, err := redissource.New(e.shared.client, redissource.Options{Prefix: e.options.RedisPrefix})
	if err == nil && e.options.Check {
		return struct{ policy.Source }{source}, nil // it reports no instance
	}
	return source, err
}

// isPublished reports whether the policies are published in Redis.
func (e *Engine) isPublished() bool { return e.options.Source == nil && e.options.Policies == "" }

// Fixed returns a source that has always the same policies.
func Fixed(set policy.Set) policy.Source { return fixed{set} }

type fixed struct{ set policy.Set }

const fixedVersion = "fixed"

// Load implements [policy.Source].
func (f fixed) Load(_ context.Context, known string) (policy.Snapshot, error) {
	if known == fixedVersion {
		return policy.Snapshot{}, policy.ErrUnchanged
	}
	return policy.Snapshot{Version: fixedVersion, Policies: f.set}, nil
}
