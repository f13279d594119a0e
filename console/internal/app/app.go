// Package app puts the parts of the console together.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/headgate/headgate/console/internal/config"
	"github.com/headgate/headgate/console/internal/publish"
	"github.com/headgate/headgate/console/internal/service"
	"github.com/headgate/headgate/console/internal/store"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/redis/go-redis/v9"
)

// App is the console without its pages.
type App struct {
	Service *service.Service

	// These are nil without Redis.
	Publisher *publish.Worker
	Instances *redissource.Source // where the instances report
	Redis     redis.UniversalClient

	// OneTimePassword is the password of service.FirstUser if Open created that
	// administrator, or "".
	OneTimePassword string

	db *store.DB
}

// Open opens the database and creates the first administrator in an empty one. With
// a Redis, which need not answer yet, it starts to publish.
func Open(ctx context.Context, c config.Config, logger *slog.Logger) (*App, error) {
	a := &App{}
	if err := a.open(ctx, c, logger); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *App) open(ctx context.Context, c config.Config, logger *slog.Logger) (err error) {
	if a.db, err = store.Open(ctx, store.Options{URL: c.DB}); err != nil {
		return err
	}
	a.Service, err = service.New(service.Options{DB: a.db, Changed: a.wake, Logger: logger})
	if err != nil {
		return err
	}
	if c.Recover == "" {
		if a.OneTimePassword, err = a.Service.Bootstrap(ctx); err != nil {
			return fmt.Errorf("the first administrator: %w", err)
		}
	}
	if c.Redis == nil || c.Recover != "" {
		return nil
	}
	return a.publish(c, logger)
}

// publish starts the publisher. It runs before the first call of the service.
func (a *App) publish(c config.Config, logger *slog.Logger) (err error) {
	a.Redis = redis.NewUniversalClient(c.Redis)
	if a.Instances, err = redissource.New(a.Redis, redissource.Options{Prefix: c.RedisPrefix}); err != nil {
		return err
	}
	a.Publisher, err = publish.Start(publish.Options{Source: a.Service.Outbox(), Publisher: a.Instances, Logger: logger})
	return err
}

// wake makes the publisher look for a change.
func (a *App) wake() {
	if a.Publisher != nil {
		a.Publisher.Wake()
	}
}

// Healthy returns an error while the database does not answer.
func (a *App) Healthy(ctx context.Context) error { return a.db.Ping(ctx) }

// Close stops everything that Open started. Changes that were not published yet
// are published at the next start.
func (a *App) Close() error {
	var errs []error
	if a.Publisher != nil {
		errs = append(errs, a.Publisher.Close())
	}
	if a.Redis != nil {
		errs = append(errs, a.Redis.Close())
	}
	if a.db != nil {
		errs = append(errs, a.db.Close())
	}
	return errors.Join(errs...)
}
