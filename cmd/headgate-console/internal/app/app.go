// Package app puts the parts of the console together. [Open] returns an [App], the console without
// its pages.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/alert"
	"github.com/headgate/headgate/cmd/headgate-console/internal/collect"
	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/cmd/headgate-console/internal/live"
	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/cmd/headgate-console/internal/webhook"
	"github.com/headgate/headgate/cmd/headgate-console/internal/worker"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/policy/stats"
	"github.com/headgate/headgate/store/redisstore"
)

// App is the console without its pages.
type App struct {
	Service *service.Service

	// These are nil without Redis.
	Publisher *publish.Worker
	Instances *redissource.Source // where the instances report
	Redis     redis.UniversalClient
	Fleet     service.Fleet

	// OneTimePassword is the password of service.FirstUser if Open created that
	// administrator, or "".
	OneTimePassword string

	db      *store.DB
	closers []func() error // of what is open, in the order of the opening
}

// Open opens the database and creates the first administrator in an empty one. With
// a Redis, which need not answer yet, it starts to publish. Open waits for a database whose server
// is not there yet, unless it recovers a user. It fails at once if the server or Redis refuses what
// the configuration says, such as a password.
func Open(ctx context.Context, c config.Config, logger *slog.Logger) (*App, error) {
	a := &App{}
	if err := a.open(ctx, c, logger); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *App) open(ctx context.Context, c config.Config, logger *slog.Logger) (err error) {
	serving := c.Redis != nil && c.Recover == ""
	if serving {
		if err := knock(ctx, c.Redis, logger); err != nil {
			return err
		}
	}

	a.db, err = store.Open(ctx, store.Options{URL: c.DB, Keys: c.Keys, Logger: logger, Wait: c.Recover == ""})
	if err != nil {
		return err
	}
	a.closers = append(a.closers, a.db.Close)

	o := service.Options{
		DB: a.db, Changed: a.wake, Logger: logger, PublicURL: c.PublicURL,
		Sender: webhook.New(webhook.Options{Networks: c.Webhooks}),
	}
	if serving {
		if err := a.connect(c); err != nil {
			return err
		}
		o.Fleet = a.Fleet
	}

	if a.Service, err = service.New(o); err != nil {
		return err
	}

	// A recovery makes its own administrator. The first start of an empty database makes the first
	// one.
	if c.Recover == "" {
		if a.OneTimePassword, err = a.Service.Bootstrap(ctx); err != nil {
			return fmt.Errorf("the first administrator: %w", err)
		}
	}

	// From here on changes of policies are published. The service is ready for the workers'
	// questions.
	if serving {
		a.Publisher = publish.Start(a.Service.Outbox(), a.Instances, logger)
		a.closers = append(a.closers, a.Publisher.Close,
			collect.Start(a.counts(c), a.Service.Ledger(), logger).Close)
	}

	// Pauses end and alerts are sent without Redis too.
	if c.Recover == "" {
		a.closers = append(a.closers, pauses(a.Service.Calendar(), logger).Close,
			alert.Start(a.Service.Alarm(), logger).Close)
	}
	return nil
}

// pauses starts a worker that ends the pauses of policies, at most five seconds late.
func pauses(c service.Calendar, logger *slog.Logger) *worker.Worker {
	return worker.Start(worker.Task{
		Run:     func(ctx context.Context) (time.Duration, error) { return 5 * time.Second, c.Run(ctx) },
		Timeout: time.Minute, Logger: logger,
		Failing: "the pauses of policies cannot be ended", Working: "the pauses of policies are ended again",
	})
}

// connect opens the client of Redis and what reads with it.
func (a *App) connect(c config.Config) (err error) {
	a.Redis = redis.NewUniversalClient(c.Redis)
	a.closers = append(a.closers, a.Redis.Close)

	if a.Instances, err = redissource.New(a.Redis, redissource.Options{Prefix: c.RedisPrefix}); err != nil {
		return err
	}

	// What many pages show is read once for all of them.
	view := live.New(a.counts(c), a.Instances, func(ctx context.Context, app string) (stats.Top, error) {
		return stats.ReadTop(ctx, a.Redis, c.RedisPrefix, app)
	}, func(ctx context.Context, app, policy string, from time.Time, n int) ([]topkeys.Summary, error) {
		return stats.ReadMinuteKeys(ctx, a.Redis, c.RedisPrefix, app, policy, from, n)
	})
	a.closers = append(a.closers, view.Close)

	keys, err := redisstore.New(a.Redis, redisstore.Options{Prefix: c.RedisPrefix, Timeout: keyTimeout})
	a.Fleet = fleet{view, keys}
	return err
}

const (
	// keyTimeout bounds the look-up of a key. It is longer than the default of a store, because no
	// request waits for it.
	keyTimeout = 5 * time.Second

	// maxBans is how many bans a store is asked for at most.
	maxBans = 10_000
)

// fleet is what the instances report, and the store of their keys. It cannot find keys that
// instances hide with a secret.
type fleet struct {
	*live.View
	*redisstore.Store
}

// Bans implements [service.Fleet].
func (f fleet) Bans(ctx context.Context, policies []string) ([]core.Banned, error) {
	return f.Report().Bans(ctx, policies, maxBans)
}

// counts returns the counts of the instances in Redis.
func (a *App) counts(c config.Config) collect.Redis {
	return collect.Redis{Client: a.Redis, Prefix: c.RedisPrefix}
}

// wake makes the publisher look for a change.
func (a *App) wake() {
	if a.Publisher != nil {
		a.Publisher.Wake()
	}
}

// Healthy returns an error while the database does not answer, or has no space for a write. That
// error matches syscall.ENOSPC.
func (a *App) Healthy(ctx context.Context) error { return a.db.Ping(ctx) }

// Unpublished says that the policies are not published because those in Redis are not of this
// database, and "" otherwise. It is not a reason to take the console out of service: an
// administrator takes over on its pages.
func (a *App) Unpublished() string {
	if a.Publisher == nil {
		return ""
	}
	if e := a.Publisher.Status().Foreign(); e != nil {
		return "the policies are not published: " + e.Reason()
	}
	return ""
}

// Close stops everything that Open started. Changes that were not published yet
// are published at the next start.
func (a *App) Close() error {
	// What uses something was opened after what it uses, and is closed before.
	var errs []error
	for _, end := range slices.Backward(a.closers) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}
