package engine

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// logged is a log that tests read.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func shop(name, limit string, apps ...string) policy.Policy {
	if apps == nil {
		apps = []string{"shop"}
	}
	return policy.Policy{Name: name, Apps: apps, Limit: core.MustParseLimit(limit), Key: "global"}
}

// write replaces a file of policies as a whole.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func yaml(limit string) string {
	return "policies:\n- {name: all, apps: [shop], limit: " + limit + ", key: global}\n"
}

func open(t *testing.T, o Options) *Engine {
	t.Helper()
	if o.Apps == nil {
		o.Apps = []string{"shop"}
	}
	if o.Logger == nil {
		o.Logger = quiet
	}
	// A busy machine may keep a load waiting for longer than the default.
	o.LoadTimeout = cmp.Or(o.LoadTimeout, 10*time.Second)
	e, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func limiterOf(t *testing.T, e *Engine, app string, f Face) *limiter.Limiter {
	t.Helper()
	l, err := e.Limiter(app, f)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// admitted returns how many of n units a limiter admits, each asked for alone.
func admitted(t *testing.T, l *limiter.Limiter, n int) int {
	t.Helper()
	got := 0
	for range n {
		r := &test.Request{Ctx: t.Context(), Verb: "GET", URLPath: "/", Peer: "192.0.2.1:1"}
		if a := l.Admit(r); a.Status() == 0 {
			a.Done(200)
			got++
		} else {
			a.Done(a.Status())
		}
	}
	return got
}

// until waits until a condition holds, for at most a minute.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatal("not within a minute: " + what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestFacesShareCounts(t *testing.T) {
	e := open(t, Options{Source: Fixed(policy.Set{shop("all", "10/1h fixed-window")})})
	one, two := limiterOf(t, e, "", Face{Name: "proxy"}), limiterOf(t, e, "shop", Face{Name: "auth"})

	if one == two {
		t.Error("two faces have one limiter")
	}

	if again := limiterOf(t, e, "shop", Face{Name: "proxy"}); again != one {
		t.Error("a face has two limiters for one application")
	}

	// One store stands behind both faces: what the proxy has admitted, the other one cannot.
	if a, b := admitted(t, one, 7), admitted(t, two, 7); a != 7 || b != 3 {
		t.Errorf("admitted %d and %d of a limit of 10, want 7 and 3", a, b)
	}

	if _, err := e.Limiter("blog", Face{Name: "proxy"}); err == nil || !strings.Contains(err.Error(), `"blog"`) {
		t.Errorf("an application that the gateway does not have: %v", err)
	}
	if _, err := e.Limiter("shop", Face{Name: "../x"}); err == nil {
		t.Error("a face has a name that is no name")
	}
}

func TestPoliciesOfAFileChangeWhileInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, yaml("3/1h"))
	var log logged
	e := open(t, Options{Policies: path, Poll: 10 * time.Millisecond, Logger: log.logger()})

	l := limiterOf(t, e, "", Face{Name: "proxy"})
	if n := admitted(t, l, 5); n != 3 {
		t.Errorf("%d admitted, want 3", n)
	}

	write(t, path, yaml("nonsense"))
	until(t, "a bad file is logged", func() bool { return strings.Contains(log.String(), "policies are refused") })

	// What is in force stays in force: the three of before are used up, and the gateway serves on.
	if err := e.Ready(); err != nil {
		t.Errorf("a bad file makes the gateway unready: %v", err)
	}
	if n := admitted(t, l, 5); n != 0 {
		t.Errorf("%d admitted after a bad file, want 0", n)
	}

	write(t, path, yaml("5/1h"))

	// The count stays over the change: of five, three are taken, and the wait takes the fourth.
	until(t, "the file is in force", func() bool { return admitted(t, l, 1) == 1 })
	if n := admitted(t, l, 5); n != 1 {
		t.Errorf("%d admitted, want the last of 5", n)
	}
}

func TestOpenFailsForAFileThatCannotBeUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	e := open(t, Options{Policies: path})
	if _, err := e.Limiter("", Face{Name: "proxy"}); !errors.Is(err, policy.ErrMissing) {
		t.Errorf("a file that is not there: %v", err)
	}
	write(t, path, yaml("nonsense"))
	_, err := e.Limiter("", Face{Name: "proxy"})
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("a file with mistakes: %v", err)
	}
}

func TestOpenNamesEveryMistake(t *testing.T) {
	_, err := Open(t.Context(), Options{
		Apps: []string{"a b", "shop", "shop"}, Policies: "limits.txt", Timeout: time.Hour, Poll: time.Nanosecond,
		LoadTimeout: -1, Instance: "a b", Bindings: policy.Bindings{APIKeyHeader: "a b"},
	})

	if err == nil {
		t.Fatal("no error")
	}

	for _, want := range []string{`"a b" is not`, `"shop" is listed twice`, `"limits.txt"`, "timeout 1h0m0s", "Poll",
		"Options.Timeout", "Instance", "APIKeyHeader"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}

	if _, err := Open(t.Context(), Options{Redis: &redis.UniversalOptions{}, RedisPrefix: "{",
		Apps: []string{"shop"}, Logger: quiet}); err == nil || !strings.Contains(err.Error(), "brace") {
		t.Errorf("a prefix with a brace: %v", err)
	}

	if _, err := Open(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "0 applications") ||
		!strings.Contains(err.Error(), "there are no policies") {
		t.Errorf("no options: %v", err)
	}
}

func TestAFaceLeavesOutWhatItCannotKeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	text := "policies:\n- {name: leased, apps: [shop], limit: 1 concurrent ttl=1m, key: global}\n" +
		"- {name: other, apps: [blog], limit: 1 concurrent ttl=1m, key: global}\n" +
		"- {name: off, apps: [shop], limit: 1 concurrent ttl=1m, key: global, mode: off}\n" +
		"- {name: all, apps: [shop], limit: LIMIT, key: global}\n"
	write(t, path, strings.ReplaceAll(text, "LIMIT", "3/1h"))
	var log logged

	e := open(t, Options{Policies: path, Poll: 10 * time.Millisecond, Logger: log.logger()})
	auth := Face{Name: "auth", CannotKeep: func(p policy.Policy) string {
		if p.Limit.Leased() {
			return "it cannot release leases"
		}
		return ""
	}}
	l := limiterOf(t, e, "", auth)
	if n := admitted(t, l, 5); n != 3 {
		t.Errorf("%d admitted, want 3", n)
	}

	warned := func() int { return strings.Count(log.String(), `level=WARN`) }
	if want := `face=auth app=shop policy=leased reason="it cannot release leases"`; warned() != 1 ||
		!strings.Contains(log.String(), want) {
		t.Errorf("logged\n%swant one warning with %s", log.String(), want)
	}

	write(t, path, strings.ReplaceAll(text, "LIMIT", "5/1h"))
	until(t, "a second revision warns again", func() bool { return warned() == 2 })

	// The limit of one at a time is refused by the face that can keep it, while one is inside.
	proxy := limiterOf(t, e, "", Face{Name: "proxy"})
	inside := proxy.Admit(&test.Request{Ctx: t.Context(), Peer: "192.0.2.1:1"})
	if inside.Status() != 0 {
		t.Fatal(inside.Violated())
	}

	if n := admitted(t, proxy, 1); n != 0 {
		t.Error("the other face leaves the policy out too")
	}
	inside.Done(200)
}

func TestAFaceBindsAndConfigures(t *testing.T) {
	p := shop("users", "1/1h")
	p.Key = "user"
	e := open(t, Options{Source: Fixed(policy.Set{p})})

	// A face without a way to learn the user fails when it opens, not at its first request.
	if _, err := e.Limiter("", Face{Name: "plain"}); err == nil || !strings.Contains(err.Error(), "Bindings.User") {
		t.Errorf("a policy without its binding: %v", err)
	}

	l := limiterOf(t, e, "", Face{Name: "bound",
		Bind: func(b policy.Bindings) policy.Bindings {
			b.User = func(core.Request) (string, bool) { return "ann", true }
			return b
		},

		// The store and the rules are the engine's: a face that sets them has no effect.
		Configure: func(c *limiter.Config) {
			c.Headers = limiter.NoHeaders
			c.Store = nil
			c.Rules = []limiter.Rule{{Name: "x"}}
		}})
	if n := admitted(t, l, 3); n != 1 {
		t.Errorf("%d admitted, want 1", n)
	}

	a := l.Admit(&test.Request{Ctx: t.Context(), Peer: "192.0.2.1:1"})
	for _, h := range a.Headers() {
		if strings.Contains(h.Name, "Ratelimit") {
			t.Errorf("the header %s is sent although the face has none", h.Name)
		}
	}

	a.Done(429)
}

func TestLastGoodPoliciesAreKeptByApplicationAndFace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "limits.yaml")
	write(t, path, "policies:\n- {name: all, apps: [shop, a/b], limit: 2/1h, key: global}\n")

	o := Options{Apps: []string{"shop", "a/b"}, Policies: path, LastGood: dir}
	e := open(t, o)

	limiterOf(t, e, "shop", Face{Name: "proxy"})
	limiterOf(t, e, "a/b", Face{Name: "proxy"})

	// The second engine finds no file, and has only what the first has kept. The slash must not
	// lead out of the folder.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	again := open(t, o)

	for _, app := range o.Apps {
		if n := admitted(t, limiterOf(t, again, app, Face{Name: "proxy"}), 1); n != 1 {
			t.Errorf("%s: %d admitted", app, n)
		}
	}

	if err := again.Ready(); err != nil {
		t.Error(err)
	}
}

func TestNothingIsPossibleAfterClose(t *testing.T) {
	e := open(t, Options{Source: Fixed(nil)})
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Error(err)
	}
	if _, err := e.Limiter("", Face{Name: "proxy"}); !errors.Is(err, errStopped) {
		t.Error(err)
	}
	if err := e.Ready(); !errors.Is(err, errStopped) {
		t.Error(err)
	}
}

func TestShutdownLetsWaitingRequestsHaveTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := shop("all", "1/10s")
		p.OnLimit = "wait 1m"
		e, err := Open(t.Context(), Options{Apps: []string{"shop"}, Source: Fixed(policy.Set{p}), Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}

		one, two := limiterOf(t, e, "", Face{Name: "one"}), limiterOf(t, e, "", Face{Name: "two"})
		ask := func(l *limiter.Limiter) int {
			a := l.Admit(&test.Request{Ctx: t.Context(), Peer: "192.0.2.1:1"})
			defer a.Done(a.Status())
			return a.Status()
		}

		ask(one)

		results := make(chan int, 4)
		for _, l := range []*limiter.Limiter{one, two, one, two} { // turns after 10, 20, 30 and 40 s
			go func() { results <- ask(l) }()
			synctest.Wait()
		}

		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		begun := time.Now()

		if err := e.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		passed := 0
		for range 4 {
			if <-results == 0 {
				passed++
			}
		}

		// Each limiter knows only its own line, so the others wait until shortly before the
		// deadline.
		if d := time.Since(begun); passed != 2 || d != 24900*time.Millisecond {
			t.Errorf("%d had their turn and the shutdown took %v, want 2 and 24.9s", passed, d)
		}

		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}
