package filesource_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/filesource"
	"github.com/headgate/headgate/store/memstore"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// text returns a set of one policy in YAML.
func text(name string) string {
	return fmt.Sprintf("policies:\n- name: %s\n  apps: [shop]\n  limit: 100/1h\n  key: ip\n", name)
}

// write writes the file in place, as if at the time.
func write(t testing.TB, path, content string, at time.Time) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, path string) *filesource.Source {
	t.Helper()
	s, err := filesource.New(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSourceReadsAChangedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	s := open(t, path)
	if _, err := s.Load(t.Context(), ""); !errors.Is(err, policy.ErrMissing) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}

	// All instants are a minute old, so that no change is taken for a file that is still being
	// written.
	old := time.Now().Add(-time.Minute)
	write(t, path, text("a"), old)
	a, err := s.Load(t.Context(), "")
	if err != nil || len(a.Policies) != 1 || a.Policies[0].Name != "a" {
		t.Fatalf("%+v, %v", a, err)
	}

	// Without a change the answer is the same error each time, by which the follower knows that it
	// has nothing to do.
	if _, err := s.Load(t.Context(), a.Version); err != policy.ErrUnchanged {
		t.Errorf("%v", err)
	}

	// The same bytes at a later time are the same version: a deployment that copies the file again
	// changes nothing.
	write(t, path, text("a"), old.Add(time.Second))
	if _, err := s.Load(t.Context(), a.Version); err != policy.ErrUnchanged {
		t.Errorf("the same again: %v", err)
	}

	write(t, path, text("b"), old.Add(2*time.Second))
	b, err := s.Load(t.Context(), a.Version)
	if err != nil || b.Policies[0].Name != "b" || b.Version == a.Version {
		t.Errorf("%+v, %v", b, err)
	}

	// Going back to the former text goes back to its version, which is of the text and not of the
	// time.
	write(t, path, text("a"), old.Add(3*time.Second))
	if back, err := s.Load(t.Context(), b.Version); err != nil || back.Version != a.Version {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestSourceReadsAReplacedFileOfTheSameTimeAndSize(t *testing.T) {
	dir := t.TempDir()
	path, next := filepath.Join(dir, "p.yml"), filepath.Join(dir, "next")

	// Neither the time nor the size can tell the two files apart, so the source has to see that the
	// file is another one.
	at := time.Now().Add(-time.Minute)
	write(t, path, text("a"), at)
	s := open(t, path)

	a, err := s.Load(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	write(t, next, text("b"), at)
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}

	if b, err := s.Load(t.Context(), a.Version); err != nil || b.Policies[0].Name != "b" {
		t.Errorf("%+v, %v", b, err)
	}
}

// Another process may still be writing a file that was touched a moment ago.
func TestSourceWaitsWhileAFileIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock stands still
		path := filepath.Join(t.TempDir(), "p.yaml")
		write(t, path, text("a")+text("b"), time.Now().Add(-time.Minute))

		s := open(t, path)
		_, err := s.Load(t.Context(), "")
		var bad *policy.RevisionError
		if !errors.As(err, &bad) || bad.Version == "" {
			t.Fatalf("%v", err)
		}

		// A time in the future is no proof of a writer: the clock that set it may be ahead. The
		// file is read.
		write(t, path, text("a"), time.Now().Add(50*time.Millisecond)) // by another clock
		a, err := s.Load(t.Context(), bad.Version)
		if err != nil {
			t.Fatal(err)
		}

		// The file was changed this instant, so it is left to the next load.
		write(t, path, text("b"), time.Now())
		if _, err := s.Load(t.Context(), a.Version); err != policy.ErrUnchanged {
			t.Errorf("%v", err)
		}

		// Once the change is a second old the file counts as complete.
		write(t, path, text("b"), time.Now().Add(-time.Second))
		if b, err := s.Load(t.Context(), a.Version); err != nil || b.Policies[0].Name != "b" {
			t.Errorf("%+v, %v", b, err)
		}
	})
}

func TestSourceRefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := filesource.New(filepath.Join(dir, "p.toml")); err == nil ||
		!strings.HasSuffix(err.Error(), `p.toml" does not end with .json, .yaml or .yml`) {
		t.Errorf("%v", err)
	}

	// What is not a file, such as a directory, must not be taken for an empty set.
	if err := os.Mkdir(filepath.Join(dir, "d.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, filepath.Join(dir, "d.json")).Load(t.Context(), ""); err == nil ||
		!strings.HasSuffix(err.Error(), "d.json is not a regular file") {
		t.Errorf("%v", err)
	}

	// A file that is too big is a bad revision: it is not asked for again until it changes.
	path := filepath.Join(dir, "big.json")
	write(t, path, strings.Repeat(" ", policy.MaxBytes+5), time.Now().Add(-time.Minute))
	var bad *policy.RevisionError
	if _, err := open(t, path).Load(t.Context(), ""); !errors.As(err, &bad) ||
		bad.Err.Error() != "policy: 4194305 bytes are more than 4194304" {
		t.Errorf("%v", err)
	}
}

func quietLimiter(t testing.TB) *limiter.Limiter {
	t.Helper()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(limiter.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// A poll within a tenth of a second after the change leaves the file to the next.
func TestChangeIsInForceWithinTwoSecondsInFiftyLimiters(t *testing.T) {
	const longest = 100*time.Millisecond + policy.DefaultPoll

	// The bound is that of the documentation; the sum of the two pauses has to keep it.
	if longest > 2*time.Second {
		t.Errorf("a change may take %s", longest)
	}
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "p.json")
		write(t, path, `{"policies":[]}`, time.Now())
		s := open(t, path)

		var followers []*policy.Follower
		for range 50 {
			f, err := policy.Follow(t.Context(), quietLimiter(t), "shop", policy.Bindings{}, s,
				policy.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			followers = append(followers, f)
		}

		// Twenty changes one after another, so that each finds the fifty at other places in their
		// pauses.
		for quota := range 20 {
			before := followers[0].Status().Version
			write(t, path, fmt.Sprintf(`{"policies":[{"name":"a","apps":["shop"],"limit":"%d/1m","key":"ip"}]}`,
				quota+1), time.Now())

			time.Sleep(longest)
			synctest.Wait()
			for i, f := range followers {
				if st := f.Status(); st.Version == before || st.SourceErr != nil {
					t.Errorf("limiter %d has not put change %d in force: %v", i, quota+1, st.SourceErr)
				}
			}
		}
	})
}

// One change of a table of plans is one of all policies that name it.
func TestSourceReadsATableOfPlans(t *testing.T) {
	old := time.Now().Add(-time.Minute)
	for name, form := range map[string]string{
		"p.yaml": `
plans: {tiers: {pro: %s}}
policies:
- {name: a, apps: [shop], limit: 1/1h, key: ip, plans: tiers, plan_by: user}
- {name: b, apps: [shop], limit: 2/1h, key: ip, plans: tiers, plan_by: user}
`,
		"p.json": `{"plans": {"tiers": {"pro": "%s"}}, "policies": [
			{"name": "a", "apps": ["shop"], "limit": "1/1h", "key": "ip", "plans": "tiers", "plan_by": "user"},
			{"name": "b", "apps": ["shop"], "limit": "2/1h", "key": "ip", "plans": "tiers", "plan_by": "user"}]}`,
	} {
		path := filepath.Join(t.TempDir(), name)
		s := open(t, path)
		version := ""
		for i, limit := range []string{"100/1h", "500/1h"} {
			write(t, path, fmt.Sprintf(form, limit), old.Add(time.Duration(i)*time.Second))
			got, err := s.Load(t.Context(), version)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range got.Policies {
				if len(p.Plans) != 1 || p.Plans["pro"].String() != limit {
					t.Errorf("%s: the plans of %s are %v, want pro: %s", name, p.Name, p.Plans, limit)
				}
			}
			version = got.Version
		}

		// A mistake in the table refuses the revision as a whole.
		write(t, path, fmt.Sprintf(form, "fast"), old.Add(2*time.Second))
		_, err := s.Load(t.Context(), version)
		var bad *policy.RevisionError
		const want = `plans.tiers.pro: limit "fast": quota "fast" is not a whole number; ` +
			`"fast" has no period; write, say, "100/1m"`
		if !errors.As(err, &bad) || bad.Err.Error() != want {
			t.Errorf("%s: %v\nwant %s", name, err, want)
		}
	}
}
