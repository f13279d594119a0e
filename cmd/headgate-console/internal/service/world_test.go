package service

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/mariadbtest"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

// maria is one server for all tests of the package, and fragile one for the tests
// that kill or freeze it.
var maria, fragile mariadbtest.Shared

func TestMain(m *testing.M) {
	if url := os.Getenv(runsCalendar); url != "" {
		fmt.Fprintln(os.Stderr, runCalendar(url))
		os.Exit(1)
	}
	code := m.Run()
	maria.Close()
	fragile.Close()
	test.Exit(code)
}

// patience bounds a transaction, far above what a busy machine needs.
const patience = 3 * time.Minute

// clock stands still until a test moves it.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// world is a service on an empty database with the applications a, b and c, and
// its administrator, who is logged in.
type world struct {
	*Service
	t     testing.TB
	db    *store.DB
	url   string
	clock *clock
	fleet *fakeFleet
	admin Actor

	hook Webhook // in the matrix
}

const (
	adminPassword = "eleven slow lanterns"
	userPassword  = "nine quiet harbours"
)

// cheap keeps tests from spending their time on hashing.
var cheap = auth.Cost{Memory: 8, Time: 1}

// everyEngine runs a test on each engine, beside other tests that do so: one that uses MariaDB
// waits half of its time.
func everyEngine(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, sqliteURL(t)))
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, maria.Server(t).Database(t)))
	})
}

// everyEngineOnDisk runs a test that measures time or writes much, on one engine after the other.
func everyEngineOnDisk(t *testing.T, test func(t *testing.T, w *world)) {
	t.Run("sqlite", func(t *testing.T) { test(t, newWorld(t, "sqlite://"+filepath.Join(t.TempDir(), "console.db"))) })
	t.Run("mariadb", func(t *testing.T) { test(t, newWorld(t, mariadbtest.Start(t).Database(t))) })
}

func sqliteURL(t testing.TB) string {
	return "sqlite://" + filepath.Join(test.MemoryDir(t), "console.db")
}

func newWorld(t testing.TB, url string) *world {
	t.Helper()
	db := must(store.Open(t.Context(), store.Options{URL: url, Timeout: patience}))
	t.Cleanup(func() { db.Close() })

	w := &world{t: t, db: db, url: url, clock: &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)},
		fleet: &fakeFleet{}}
	w.Service = w.another()

	password, err := w.Bootstrap(t.Context())
	if err != nil || password == "" {
		t.Fatal(password, err)
	}
	w.admin = w.logIn(FirstUser, password, adminPassword)

	for _, app := range []string{"a", "b", "c"} {
		w.must(w.CreateApp(t.Context(), w.admin, app, ""))
	}
	return w
}

// another returns a second service on the same database.
func (w *world) another() *Service {
	w.t.Helper()
	s, err := New(Options{DB: w.db, Fleet: w.fleet, Sender: loopback(w.clock.now), Clock: w.clock.now,
		Passwords: cheap, Logger: slog.New(slog.DiscardHandler)})
	w.must(err)
	return s
}

// must returns the result of a call that cannot fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// logIn logs in a user with a one-time password, and changes the password.
func (w *world) logIn(user, oneTime, password string) Actor {
	w.t.Helper()
	ctx := w.t.Context()
	first := must(w.Login(ctx, user, oneTime, Meta{Address: "192.0.2.1:1000"}))

	if !first.MustChangePassword {
		w.t.Errorf("%s does not have to change the password", user)
	}

	second := must(w.ChangePassword(ctx, w.actor(first), oneTime, password))
	return w.actor(second)
}

func (w *world) actor(s Session) Actor {
	w.t.Helper()
	a := must(w.Authenticate(w.t.Context(), s.Token, Meta{Address: "192.0.2.1:1000", RequestID: "request-1"}))
	return a
}

// person adds a user with roles and returns the actor of its session.
func (w *world) person(name string, roles map[string]Role) Actor {
	w.t.Helper()
	password := must(w.CreateUser(w.t.Context(), w.admin, name))
	for app, role := range roles {
		w.must(w.SetRole(w.t.Context(), w.admin, name, app, role))
	}
	return w.logIn(name, password, userPassword)
}

// sample returns a valid policy.
func sample(name string, apps ...string) policy.Policy {
	return policy.Policy{Name: name, Apps: apps, Limit: core.Limit{Quota: 100, Period: time.Minute}, Key: "ip"}
}

// create adds a policy as the administrator.
func (w *world) create(p policy.Policy) policy.Policy {
	w.t.Helper()
	saved := must(w.CreatePolicy(w.t.Context(), w.admin, p))
	return saved
}

// entries returns rows of the audit log.
func (w *world) entries(q AuditQuery) []Entry {
	w.t.Helper()
	q.Limit = MaxPerPage
	list := must(w.Audit(w.t.Context(), w.admin, q))
	return list
}

// equal checks a value.
func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func wantErr(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: the error is %v, want %v", what, got, want)
	}
}

// wantFault checks that err is an InvalidError with a mistake in a field.
func wantFault(t testing.TB, what string, err error, field string) {
	t.Helper()
	var invalid *InvalidError
	if !errors.As(err, &invalid) {
		t.Errorf("%s: the error is %v, want a mistake in %q", what, err, field)
		return
	}
	for _, f := range invalid.Faults {
		if f.Field == field {
			return
		}
	}
	t.Errorf("%s: the mistakes %v are not in %q", what, invalid.Faults, field)
}

// wantConflict checks that err is a ConflictError between two versions.
func wantConflict(t testing.TB, what string, err error, mine, theirs int64) *ConflictError {
	t.Helper()
	var c *ConflictError
	if !errors.As(err, &c) {
		t.Fatalf("%s: the error is %v, want a conflict", what, err)
	}
	if c.Mine.Version != mine || c.Theirs.Version != theirs {
		t.Errorf("%s: the conflict is between %d and %d, want %d and %d", what, c.Mine.Version, c.Theirs.Version, mine,
			theirs)
	}
	return c
}
