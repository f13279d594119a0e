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
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
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
	must(t, err)
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
	must(t, err)
	actor, err := a.Service.Authenticate(ctx, first.Token, service.Meta{})
	must(t, err)

	// The one-time password is good for nothing but its change.
	second, err := a.Service.ChangePassword(ctx, actor, a.OneTimePassword, "a password of one's own")
	must(t, err)

	// A new password ends the session.
	actor, err = a.Service.Authenticate(ctx, second.Token, service.Meta{})
	must(t, err)
	return actor
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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
	d := atDesk(t, server.Addr, "sqlite://"+filepath.Join(t.TempDir(), "console.db"))
	d.save("p", "10/1s")
	d.shows("p")

	// Instances do not need names, so Redis holds none.
	s, err := d.Instances.Load(t.Context(), "")
	d.must(err)
	if p := s.Policies[0]; p.CreatedBy != "" || p.UpdatedBy != "" || !p.CreatedAt.IsZero() {
		t.Errorf("names of users were published: %+v", p)
	}

	// A caller of the console meets no error: its change is saved while Redis is away, and waits.
	server.Kill()
	d.save("q", "10/1s")
	until(t, "a failure", func() bool { return d.Publisher.Status().Failures > 0 })

	// What was saved meanwhile is published without another change.
	server.Restart()
	d.shows("p q")

	// The database notes it a little later.
	until(t, "the status", func() bool {
		v, err := d.Service.Publishing(t.Context(), d.actor)
		return err == nil && v.Version == 2 && v.Published == 2 && d.Publisher.Status().Failures == 0
	})
}

func TestStartPublishesPendingChanges(t *testing.T) {
	server := redistest.Start(t)
	db := "sqlite://" + filepath.Join(t.TempDir(), "console.db")

	// The first console has no Redis, so its policy is not published.
	atDesk(t, "", db).save("p", "10/1s")

	// The next one has, and finds what waits.
	again := atDesk(t, server.Addr, db)

	if again.OneTimePassword != "" {
		t.Error("a second administrator was made")
	}
	again.shows("p")
}
