package app

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/cmd/headgate-console/internal/mariadbtest"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
)

// maria is one server for all tests of the package.
var maria mariadbtest.Shared

func TestMain(m *testing.M) {
	code := m.Run()
	maria.Close()
	test.Exit(code)
}

func open(t *testing.T, c config.Config) *App {
	t.Helper()
	a, err := Open(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil && !errors.Is(err, redis.ErrClosed) { // a test has closed it
			t.Error(err)
		}
	})
	return a
}

// administrator logs in for the first time.
func administrator(t *testing.T, a *App) service.Actor {
	t.Helper()
	ctx := t.Context()

	first, err := a.Service.Login(ctx, service.FirstUser, a.OneTimePassword, service.Meta{})
	if err != nil {
		t.Fatal(err)
	}

	actor, err := a.Service.Authenticate(ctx, first.Token, service.Meta{})
	if err != nil {
		t.Fatal(err)
	}

	second, err := a.Service.ChangePassword(ctx, actor, a.OneTimePassword, "a password of one's own")
	if err != nil {
		t.Fatal(err)
	}

	if actor, err = a.Service.Authenticate(ctx, second.Token, service.Meta{}); err != nil {
		t.Fatal(err)
	}
	return actor
}

// until waits for what happens in another goroutine.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within two minutes", what)
		case <-tick.C:
		}
	}
}

func TestAppPublishesAfterRedisOutage(t *testing.T) {
	server := redistest.Start(t)
	c := config.Config{
		DB: "sqlite://" + filepath.Join(t.TempDir(), "console.db"),
		Redis: &redis.UniversalOptions{Addrs: []string{server.Addr}, ContextTimeoutEnabled: true,
			DisableIdentity: true},
	}
	a := open(t, c)

	actor := administrator(t, a)
	if err := a.Service.CreateApp(t.Context(), actor, "shop", ""); err != nil {
		t.Fatal(err)
	}

	limit := func() int64 {
		s, err := a.Instances.Load(t.Context(), "")
		if err != nil || len(s.Policies) != 1 {
			return 0
		}

		// Instances do not need names, so Redis holds none.
		if p := s.Policies[0]; p.CreatedBy != "" || p.UpdatedBy != "" || !p.CreatedAt.IsZero() {
			t.Errorf("names of users were published: %+v", p)
		}
		return s.Policies[0].Limit.Quota
	}

	p := policy.Policy{Name: "p", Apps: []string{"shop"}, Limit: core.Limit{Quota: 10, Period: time.Second}, Key: "ip"}
	p, err := a.Service.CreatePolicy(t.Context(), actor, p)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the first policy", func() bool { return limit() == 10 })

	// A caller of the console meets no error: its change is saved while Redis is away.
	server.Kill()
	p.Limit.Quota = 20
	if p, err = a.Service.UpdatePolicy(t.Context(), actor, p); err != nil {
		t.Fatal(err)
	}

	// The change is in the database, and waits for Redis.
	until(t, "a failure", func() bool { return a.Publisher.Status().Failures > 0 })

	server.Restart()
	until(t, "the change from when Redis was away", func() bool { return limit() == 20 })

	until(t, "the status", func() bool {
		v, err := a.Service.Publishing(t.Context(), actor)
		return err == nil && v.Version == 2 && v.Published == 2 && a.Publisher.Status().Failures == 0
	})
}

func TestStartPublishesPendingChanges(t *testing.T) {
	server := redistest.Start(t)
	c := config.Config{DB: "sqlite://" + filepath.Join(t.TempDir(), "console.db")}

	// The first console has no Redis, so its policy is not published.
	a := open(t, c)
	actor := administrator(t, a)

	if err := a.Service.CreateApp(t.Context(), actor, "shop", ""); err != nil {
		t.Fatal(err)
	}

	p := policy.Policy{Name: "p", Apps: []string{"shop"}, Limit: core.Limit{Quota: 10, Period: time.Second}, Key: "ip"}
	if _, err := a.Service.CreatePolicy(t.Context(), actor, p); err != nil {
		t.Fatal(err)
	}

	c.Redis = &redis.UniversalOptions{Addrs: []string{server.Addr}, ContextTimeoutEnabled: true, DisableIdentity: true}
	again := open(t, c)
	if again.OneTimePassword != "" {
		t.Error("a second administrator was made")
	}

	until(t, "the policy", func() bool {
		s, err := again.Instances.Load(t.Context(), "")
		return err == nil && len(s.Policies) == 1
	})
}

func TestAppEmptyDatabaseReplacesNothing(t *testing.T) {
	server := redistest.Start(t)
	c := config.Config{
		DB: "sqlite://" + filepath.Join(t.TempDir(), "console.db"),
		Redis: &redis.UniversalOptions{Addrs: []string{server.Addr}, ContextTimeoutEnabled: true,
			DisableIdentity: true},
	}

	// Redis has the policies of another database, say of one that was lost.
	client := redis.NewUniversalClient(c.Redis)
	defer client.Close()
	source, err := redissource.New(client, redissource.Options{})
	if err != nil {
		t.Fatal(err)
	}

	p := policy.Policy{Name: "p", Apps: []string{"shop"}, Limit: core.Limit{Quota: 10, Period: time.Second}, Key: "ip"}
	if _, err := source.Publish(t.Context(), policy.Set{p}, ""); err != nil {
		t.Fatal(err)
	}

	a := open(t, c)

	// It tries at once, and an empty set would have replaced the other one by then.
	until(t, "an attempt", func() bool { return !a.Publisher.Status().At.IsZero() })
	if a.Publisher.Status().Foreign() == nil || a.Unpublished() == "" {
		t.Errorf("it does not say that it publishes nothing: %+v", a.Publisher.Status())
	}

	if s, err := source.Load(t.Context(), ""); err != nil || len(s.Policies) != 1 {
		t.Errorf("%+v %v", s, err)
	}
}
