package app

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/cmd/headgate-console/internal/publish"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/policy"
)

// desk is a console with its administrator.
type desk struct {
	*App
	t     *testing.T
	actor service.Actor
}

// atDesk opens a console on a Redis, or on none. Its database is new, or has the password of
// administrator.
func atDesk(t *testing.T, redisAddr, db string) desk {
	t.Helper()
	c := config.Config{DB: db}
	if redisAddr != "" {
		c.Redis = &redis.UniversalOptions{Addrs: []string{redisAddr},
			ContextTimeoutEnabled: true, DisableIdentity: true}
	}

	// Only the first start has a password.
	a := open(t, c)
	d := desk{App: a, t: t}
	if a.OneTimePassword != "" {
		d.actor = administrator(t, a)
		d.must(a.Service.CreateApp(t.Context(), d.actor, "shop", ""))
		return d
	}

	s, err := a.Service.Login(t.Context(), service.FirstUser, "a password of one's own", service.Meta{})
	d.must(err)
	d.actor, err = a.Service.Authenticate(t.Context(), s.Token, service.Meta{})
	d.must(err)
	return d
}

func (d desk) must(err error) {
	d.t.Helper()
	must(d.t, err)
}

// save creates a policy.
func (d desk) save(name, limit string) {
	d.t.Helper()
	_, err := d.Service.CreatePolicy(d.t.Context(), d.actor, policy.Policy{Name: name, Apps: []string{"shop"},
		Limit: core.MustParseLimit(limit), Key: "ip"})
	d.must(err)
}

// names returns the published policies.
func (d desk) names() string {
	s, err := d.Instances.Load(d.t.Context(), "")
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, p := range s.Policies {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

// shows waits until Redis has the policies.
func (d desk) shows(want string) {
	d.t.Helper()
	until(d.t, want, func() bool { return d.names() == want })
}

// refused waits until the console has seen that another database is published.
func (d desk) refused() *publish.ForeignError {
	d.t.Helper()
	until(d.t, "a refusal", func() bool { return d.Publisher.Status().Foreign() != nil })
	return d.Publisher.Status().Foreign()
}

// pending reports whether changes wait.
func (d desk) pending() bool {
	d.t.Helper()
	p, err := d.Service.Publishing(d.t.Context(), d.actor)
	d.must(err)
	return p.Published < p.Version
}

// everyEngine runs a test with empty databases of each engine.
func everyEngine(t *testing.T, test func(t *testing.T, first, second string)) {
	t.Run("sqlite", func(t *testing.T) {
		dir := t.TempDir()
		test(t, "sqlite://"+filepath.Join(dir, "1", "console.db"), "sqlite://"+filepath.Join(dir, "2", "console.db"))
	})
	t.Run("mariadb", func(t *testing.T) { test(t, maria.Server(t).Database(t), maria.Server(t).Database(t)) })
}

func TestTwoDatabasesOnOneRedis(t *testing.T) {
	everyEngine(t, func(t *testing.T, one, two string) {
		server := redistest.Start(t)
		first := atDesk(t, server.Addr, one)
		first.save("production", "5/1m")
		first.shows("production")
		version, err := first.Instances.Version(t.Context())
		first.must(err)

		// An empty database replaces nothing.
		second := atDesk(t, server.Addr, two)
		second.refused()
		if second.Unpublished() == "" || first.names() != "production" {
			t.Errorf("an empty database says nothing, and %q is published", first.names())
		}

		// The first save of it does not replace them either, and the console says so.
		second.save("experiment", "1000/1m")
		if e := second.refused(); e.Copy || !second.pending() || !strings.Contains(second.Unpublished(), e.Reason()) {
			t.Errorf("%+v, pending %v, %q", e, second.pending(), second.Unpublished())
		}

		// Both consoles look again, and neither publishes.
		begun := time.Now()
		until(t, "a look of both", func() bool {
			return first.Publisher.Status().At.After(begun) && second.Publisher.Status().At.After(begun)
		})
		if now, err := first.Instances.Version(t.Context()); err != nil || now != version {
			t.Errorf("the published version was %s and is %s, %v", version, now, err)
		}
		if first.Unpublished() != "" || first.pending() {
			t.Errorf("the owner says %q", first.Unpublished())
		}

		second.takesOver(first, version)
	})
}

// takesOver has the console take over from the owner, which has published the policy production
// under a version.
func (d desk) takesOver(owner desk, version string) {
	t := d.t
	t.Helper()

	// What is lost is said before.
	lost, err := d.Publisher.Takeover(t.Context())
	if err != nil || lost.Version != version || !slices.Equal(lost.Gone, []string{"production"}) {
		t.Errorf("%+v, %v", lost, err)
	}
	d.must(d.Service.TakeOver(t.Context(), d.actor, lost.Version, "production"))
	d.shows("experiment")
	until(t, "it has taken over", func() bool { return d.Unpublished() == "" && !d.pending() })

	// Now it is the other way round.
	owner.refused()
	owner.save("more", "1/1m")
	owner.refused()
	d.shows("experiment")

	rows, err := d.Service.Audit(t.Context(), d.actor, service.AuditQuery{Action: "publishing.takeover"})
	if err != nil || len(rows) != 1 || rows[0].Before != version || rows[0].After != "production" {
		t.Errorf("the audit log has %+v, %v", rows, err)
	}
}

// Consoles of one database publish in turns, and one that was killed leaves no trace.
func TestTwoConsolesOnOneDatabase(t *testing.T) {
	everyEngine(t, func(t *testing.T, db, _ string) {
		server := redistest.Start(t)
		first := atDesk(t, server.Addr, db)
		first.save("a", "5/1m")
		second := atDesk(t, server.Addr, db)
		second.save("b", "5/1m")
		first.save("c", "5/1m")
		first.shows("a b c")
		for name, d := range map[string]desk{"first": first, "second": second} {
			until(t, name, func() bool { return !d.pending() && d.Publisher.Status().Err == nil })
		}
	})
}

// A copy of the file is another database, also while it has all policies.
func TestACopyTakesOverByItsAdministrator(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "console.db")
	first := atDesk(t, server.Addr, "sqlite://"+path)
	first.save("a", "5/1m")
	first.shows("a")
	until(t, "it is noted", func() bool { return !first.pending() })
	first.must(first.Close())

	data, err := os.ReadFile(path)
	first.must(err)
	first.must(os.WriteFile(filepath.Join(dir, "copy.db"), data, 0o600))

	second := atDesk(t, server.Addr, "sqlite://"+filepath.Join(dir, "copy.db"))
	second.refused()
	lost, err := second.Publisher.Takeover(t.Context())
	if err != nil || !lost.Keeps() {
		t.Errorf("%+v, %v", lost, err)
	}
	second.must(second.Service.TakeOver(t.Context(), second.actor, lost.Version, ""))
	second.save("b", "5/1m")
	second.shows("a b")

	// The first one is refused from then on. A console that starts where it was finds the same.
	third := atDesk(t, server.Addr, "sqlite://"+path)
	third.refused()
}

// A backup that is older than what is published replaces it by a decision alone: neither by more
// saves than there were since, nor after a restart, and in Redis emptied not before the owner.
func TestABackupTakesOverByItsAdministrator(t *testing.T) {
	everyEngine(t, func(t *testing.T, db, _ string) {
		server := redistest.Start(t)
		file := filepath.Join(t.TempDir(), "backup")
		first := atDesk(t, server.Addr, db)
		first.save("a", "5/1m")
		first.shows("a")
		until(t, "it is noted", func() bool { return !first.pending() })
		first.must(store.Backup(t.Context(), db, file))
		first.save("newer", "5/1m")
		first.shows("a newer")
		until(t, "it is noted", func() bool { return !first.pending() })
		first.must(first.Close())
		first.must(store.Restore(t.Context(), db, file, true))

		second := atDesk(t, server.Addr, db)
		for _, name := range []string{"b", "c", "d"} {
			second.save(name, "5/1m")
			begun := time.Now()
			second.wake()
			until(t, "a look", func() bool { return second.Publisher.Status().At.After(begun) })
			if e := second.refused(); !e.Copy || second.names() != "a newer" {
				t.Fatalf("after %s: %+v, and %q is published", name, e, second.names())
			}
		}
		second.must(second.Close())

		third := atDesk(t, server.Addr, db)
		if e := third.refused(); !e.Copy || third.names() != "a newer" {
			t.Errorf("after a restart: %+v, and %q is published", e, third.names())
		}
		third.must(third.Close())
		third.must(redis.NewClient(&redis.Options{Addr: server.Addr}).FlushAll(t.Context()).Err())
		fourth := atDesk(t, server.Addr, db)
		if e := fourth.refused(); e.Published.Version != "" {
			t.Errorf("in an empty Redis: %+v", e)
		}
	})
}
