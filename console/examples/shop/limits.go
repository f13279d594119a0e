package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/policy/stats"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/redis/go-redis/v9"
)

// app is the application whose policies are followed.
const app = "shop"

// limits are the limits that the console holds for this application.
type limits struct {
	Limiter *limiter.Limiter
	parts   []io.Closer // the last opened is closed first
}

// follow connects to Redis and follows the policies there. Until policies are
// published for the first time, everything passes. The name is unique to this
// instance.
func follow(ctx context.Context, s settings, name string, logger *slog.Logger) (*limits, error) {
	l := &limits{}
	if err := l.open(ctx, s, name, logger); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *limits) open(ctx context.Context, s settings, name string, logger *slog.Logger) error {
	client := redis.NewClient(s.redis)
	l.parts = append(l.parts, client)
	store, err := l.store(client, s, logger)
	if err != nil {
		return err
	}
	recorder, err := stats.New(client, stats.Options{App: app, Instance: name, Logger: logger})
	if err != nil {
		return err
	}
	l.parts = append(l.parts, recorder)
	if l.Limiter, err = limiter.New(limiter.Config{Store: store, Observer: recorder, Logger: logger}); err != nil {
		return err
	}
	l.parts = append(l.parts, l.Limiter)
	source, err := redissource.New(client, redissource.Options{})
	if err != nil {
		return err
	}
	follower, err := policy.Follow(ctx, l.Limiter, app, policy.Bindings{User: keyfuncs.UserID(userOf)}, source, policy.Options{
		Instance: name, LastGood: s.lastGood, OnMissing: policy.OnMissingWait, Logger: logger,
	})
	if err != nil {
		return err
	}
	l.parts = append(l.parts, follower)
	return nil
}

// store returns a store in Redis. While Redis is away, each instance admits its
// part from memory.
func (l *limits) store(client redis.UniversalClient, s settings, logger *slog.Logger) (core.Store, error) {
	primary, err := redisstore.New(client, redisstore.Options{Timeout: s.timeout})
	if err != nil {
		return nil, err
	}
	memory, err := memstore.New(memstore.Options{})
	if err != nil {
		return nil, err
	}
	instances, err := failover.NewInstances(client, failover.InstancesOptions{Key: "hg:{instances:" + app + "}", Logger: logger})
	if err != nil {
		return nil, err
	}
	l.parts = append(l.parts, instances)
	store, err := failover.New(primary, failover.Options{Fallback: memory, Instances: instances.Live, Logger: logger})
	if err != nil {
		return nil, err
	}
	l.parts = append(l.parts, store)
	return store, nil
}

// Close ends everything that follow started.
func (l *limits) Close() error {
	var errs []error
	for i := len(l.parts) - 1; i >= 0; i-- {
		errs = append(errs, l.parts[i].Close())
	}
	l.parts = nil
	return errors.Join(errs...)
}
