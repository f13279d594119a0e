package apply

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/api"
	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// world is a console with the applications a, b and c, and a directory of files.
type world struct {
	t      *testing.T
	s      *service.Service
	admin  service.Actor
	server *httptest.Server
	dir    string
	token  string // of the administrator

	before func(*http.Request) // is called before the console answers
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{URL: "sqlite://" + filepath.Join(test.MemoryDir(t), "console.db"),
		Timeout: 3 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })

	w := &world{t: t, dir: t.TempDir()}
	w.s, err = service.New(service.Options{DB: db, Passwords: auth.Cost{Memory: 8, Time: 1},
		Logger: slog.New(slog.DiscardHandler)})
	w.must(err)

	first, err := w.s.Bootstrap(t.Context())
	w.must(err)
	w.admin = w.logIn(service.FirstUser, first)

	for _, app := range []string{"a", "b", "c"} {
		w.must(w.s.CreateApp(t.Context(), w.admin, app, ""))
	}

	w.token = w.tokenOf(w.admin, service.Write)

	// The server answers programs, and a test may change something before each answer.
	programs, err := api.New(api.Options{Service: w.s, Logger: slog.New(slog.DiscardHandler)})
	w.must(err)
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.before != nil {
			w.before(r)
		}
		programs.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.server.Close)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) logIn(user, oneTime string) service.Actor {
	w.t.Helper()
	ctx := w.t.Context()
	first, err := w.s.Login(ctx, user, oneTime, service.Meta{})
	w.must(err)
	actor, err := w.s.Authenticate(ctx, first.Token, service.Meta{})
	w.must(err)
	second, err := w.s.ChangePassword(ctx, actor, oneTime, "nine quiet harbours")
	w.must(err)
	actor, err = w.s.Authenticate(ctx, second.Token, service.Meta{})
	w.must(err)
	return actor
}

func (w *world) tokenOf(actor service.Actor, scope service.Scope) string {
	w.t.Helper()
	_, secret, err := w.s.CreateToken(w.t.Context(), actor, service.TokenDraft{Label: "ci",
		Scope: scope, Life: time.Hour})
	w.must(err)
	return secret
}

// person returns a user with a role in one application.
func (w *world) person(name, app string, role service.Role) service.Actor {
	w.t.Helper()
	oneTime, err := w.s.CreateUser(w.t.Context(), w.admin, name)
	w.must(err)
	w.must(w.s.SetRole(w.t.Context(), w.admin, name, app, role))
	return w.logIn(name, oneTime)
}

// write writes a file of policies, each given as fields in a line.
func (w *world) write(name string, policies ...string) {
	w.t.Helper()
	text := "policies:\n"
	for _, p := range policies {
		text += "- {" + p + "}\n"
	}
	w.raw(name, text)
}

func (w *world) raw(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	w.must(os.MkdirAll(filepath.Dir(path), 0o700))
	w.must(os.WriteFile(path, []byte(text), 0o600))
}

// run runs a command on the directory, and returns what it prints with the directory
// replaced by DIR.
func (w *world) run(args ...string) (code int, out, bad string) {
	w.t.Helper()
	env := map[string]string{EnvURL: w.server.URL, EnvToken: w.token}
	var o, b strings.Builder
	args = append([]string{args[0], "-f", w.dir}, args[1:]...)
	code = Main(w.t.Context(), args, func(name string) string { return env[name] }, &o, &b)
	if text := o.String() + b.String(); strings.Contains(text, w.token) {
		w.t.Errorf("%q prints the token:\n%s", args, text)
	}
	replace := func(s string) string { return strings.ReplaceAll(s, w.dir+string(filepath.Separator), "DIR/") }
	return code, replace(o.String()), replace(b.String())
}

// want runs a command and compares all that it does.
func (w *world) want(code int, out, bad string, args ...string) {
	w.t.Helper()
	gotCode, gotOut, gotBad := w.run(args...)
	if gotCode != code || gotOut != out || gotBad != bad {
		w.t.Errorf("%q ends with %d, want %d\n%s%s\nwant\n%s%s", args, gotCode, code, gotOut, gotBad, out, bad)
	}
}

func sample(name string, apps ...string) policy.Policy {
	return policy.Policy{Name: name, Apps: apps, Limit: core.Limit{Quota: 100, Period: time.Minute}, Key: "ip"}
}

func (w *world) create(name string, apps ...string) {
	w.t.Helper()
	_, err := w.s.CreatePolicy(w.t.Context(), w.admin, sample(name, apps...))
	w.must(err)
}

// version returns the version of a policy, and 0 if it does not exist.
func (w *world) version(name string) int64 {
	p, err := w.s.Policy(w.t.Context(), w.admin, name)
	if err != nil {
		return 0
	}
	return p.Version
}
