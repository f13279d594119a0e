// This file opens the store and the source of policies.

package engine

import (
	"context"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/filesource"
	"github.com/headgate/headgate/policy/managed"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
)

// shared is what the gateway has in Redis. nil has nothing.
type shared struct {
	client redis.UniversalClient
	stack  *managed.Stack // nil if the engine only checks
	logger *slog.Logger
}

// openStore opens the store in memory, or in Redis with its fallback in memory.
func (e *Engine) openStore() error {
	o := memstore.Options{MaxKeys: e.options.MaxKeys, MaxBytes: e.options.MaxBytes, Logger: e.logger}
	if e.options.Redis != nil {
		e.shared = &shared{client: redis.NewUniversalClient(clientOptions(e.options.Redis)), logger: e.logger}
	}

	// An engine that only checks has a client, to read the policies, but counts nothing in Redis.
	if e.shared == nil || e.options.Check {
		memory, err := memstore.New(o)
		if err != nil {
			return err
		}
		e.store = memory
		return nil
	}

	stack, err := managed.OpenStack(e.shared.client, managed.StackOptions{
		Apps: e.options.Apps, Memory: o, Expected: e.options.Expected, Logger: e.logger,
		Store: redisstore.Options{
			Prefix: e.options.RedisPrefix, Timeout: e.options.Timeout, CacheRefusals: e.options.CacheRefusals,
		},
	})
	if err != nil {
		return err
	}
	e.shared.stack, e.store = stack, stack.Store
	return nil
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

// record has the limiter of an application counted for the management page, if there is one.
func (s *shared) record(app string, c *limiter.Config) {
	if s == nil || s.stack == nil {
		return
	}
	c.Observer = s.stack.Recorder(app)
}

// close closes all parts. That the last counts could not be written is no error of the gateway,
// which may end while Redis is away.
func (s *shared) close() error {
	if s == nil {
		return nil
	}
	if s.stack != nil {
		if err := s.stack.Close(); err != nil {
			s.logger.Warn("the last counts for the management page were not written", "error", err)
		}
	}
	return s.client.Close()
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
