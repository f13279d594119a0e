package caddymw

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/findinglog"
	"github.com/headgate/headgate/internal/redisurl"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/findings"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/filesource"
	"github.com/headgate/headgate/policy/managed"
	"github.com/headgate/headgate/store/memstore"
)

// Caddy makes the handlers of a new configuration before it ends those of the old one. What
// both need stays in these pools, so a reload loses neither counts nor waiting requests.
var (
	engines  = caddy.NewUsagePool() // by the configuration
	memories = caddy.NewUsagePool() // by the application
)

// wordings are findings of limiters in the words of Caddy.
var wordings = map[string]string{
	findings.Unheeded: "a peer forwards the address of a caller, but the policy counts by the address of that " +
		"peer: if it is a proxy, all of its callers share one limit, and the global option servers has to list it " +
		"as a trusted proxy, and to be strict; a client may send such a header too, and then this is as it should be",
	findings.OneKey: "the first 1000 requests all had one key: if they came through a proxy, it has to forward the " +
		"addresses of callers, and the global option servers has to list it as a trusted proxy; if one count for " +
		"all is meant, write the key global",
	findings.NoAddress: "the policy counts by the address of the client, and Caddy knows none, as with a Unix " +
		"socket: all such callers share its limit",
}

func newLogger(h slog.Handler) *slog.Logger { return slog.New(findinglog.New(h, wordings)) }

// memory is a store in the pool.
type memory struct{ *memstore.Store }

// Destruct forgets the counts.
func (memory) Destruct() error { return nil }

// engine is a limiter that follows policies, for all handlers of one configuration.
type engine struct {
	key     string
	limiter *limiter.Limiter
	logger  *slog.Logger
	log     *handlers
	ctx     context.Context
	end     context.CancelFunc
	closers []io.Closer // in the order in which they were opened
	warned  atomic.Bool // of trusted_proxies
}

// acquire returns the engine of the configuration, which logs to the handler from now on.
// Each call needs a call of release.
func acquire(c Config, log slog.Handler) (*engine, error) {
	key := c.key()
	value, _, err := engines.LoadOrNew(key, func() (caddy.Destructor, error) { return open(c, key, log) })
	if err != nil {
		return nil, err
	}
	e := value.(*engine)
	e.log.set(log)
	return e, nil
}

func (e *engine) release() error {
	_, err := engines.Delete(e.key)
	return err
}

func open(c Config, key string, log slog.Handler) (*engine, error) {
	e := &engine{key: key, log: newHandlers(log)}
	e.logger = newLogger(e.log)
	e.ctx, e.end = context.WithCancel(context.Background())

	var err error
	if c.Redis == "" {
		err = e.inMemory(&c)
	} else {
		err = e.inRedis(&c)
	}

	// What was opened before the mistake is closed again.
	if err != nil {
		return nil, errors.Join(err, e.Destruct())
	}
	return e, nil
}

// inMemory opens a limiter whose counts are those of this process.
func (e *engine) inMemory(c *Config) error {
	source, err := filesource.New(c.Policies)
	if err != nil {
		return err
	}

	// The counts stay in the pool while any configuration has the application, also one with other
	// policies.
	store, _, err := memories.LoadOrNew(c.App, func() (caddy.Destructor, error) {
		s, err := memstore.New(memstore.Options{Logger: e.logger})
		return memory{s}, err
	})
	if err != nil {
		return err
	}
	e.closers = append(e.closers, closer(func() error { _, err := memories.Delete(c.App); return err }))

	config := e.config(c)
	config.Store = store.(memory).Store
	if e.limiter, err = limiter.New(config); err != nil {
		return err
	}
	e.closers = append(e.closers, e.limiter)

	follower, err := policy.Follow(e.ctx, e.limiter, c.App, bindings(c.Plans), source, e.follow(c))
	if err != nil {
		return err
	}
	e.closers = append(e.closers, follower)
	return nil
}

// inRedis opens a limiter whose counts are those of all instances.
func (e *engine) inRedis(c *Config) error {
	options, err := redisurl.Parse(c.Redis)
	if err != nil {
		return err
	}

	client := redis.NewUniversalClient(options)
	e.closers = append(e.closers, client)

	o := managed.Options{App: c.App, Bindings: bindings(c.Plans), Follow: e.follow(c), Store: c.storeOptions(),
		Expected: c.Expected, Limiter: e.config(c)}
	if c.Policies == "" {
		o.Follow.OnMissing = policy.OnMissingWait // as Redis may be away
	} else if o.Source, err = filesource.New(c.Policies); err != nil {
		return err
	}

	limits, err := managed.Open(e.ctx, client, o)
	if err != nil {
		return err
	}
	e.closers, e.limiter = append(e.closers, limits), limits.Limiter

	// It is no error: the policies may be published later, and Redis may come back.
	if limits.Follower.Status().Version == "" {
		e.logger.Warn("headgate: no policies are in force yet, and all requests pass", "app", c.App)
	}
	return nil
}

func (e *engine) config(c *Config) limiter.Config {
	style, _ := c.style() // which was checked
	return limiter.Config{Headers: style, OnStoreError: failureModes[c.OnStoreError], Logger: e.logger}
}

func (e *engine) follow(c *Config) policy.Options {
	return policy.Options{Poll: time.Duration(c.Poll), LastGood: c.LastGood, Logger: e.logger}
}

// Destruct ends all parts, the last opened first.
func (e *engine) Destruct() error {
	e.end()
	var errs []error
	for i := len(e.closers) - 1; i >= 0; i-- {
		errs = append(errs, e.closers[i].Close())
	}
	return errors.Join(errs...)
}

// closer is a function as an [io.Closer].
type closer func() error

func (c closer) Close() error { return c() }
