package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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

// until waits until a condition holds, for at most ten seconds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatal("not within ten seconds: " + what)
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
	if err := e.Ready(); err != nil {
		t.Errorf("a bad file makes the gateway unready: %v", err)
	}
	if n := admitted(t, l, 5); n != 0 {
		t.Errorf("%d admitted after a bad file, want 0", n)
	}
	write(t, path, yaml("5/1h"))
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
