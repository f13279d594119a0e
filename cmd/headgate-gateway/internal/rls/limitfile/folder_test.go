package limitfile

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// log is a log that tests read.
type log struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return strings.Split(strings.TrimSpace(l.b.String()), "\n")
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func limited(requests string) string {
	return "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: " + requests + "}}\n"
}

func TestFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, l := t.TempDir(), &log{}

		// The time and the folder differ from run to run, and what is logged is compared.
		logger := slog.New(slog.NewTextHandler(l,
			&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey || a.Key == "folder" {
					return slog.Attr{}
				}
				return a
			}}))

		var mu sync.Mutex // the detector of races does not know that the clock orders all
		var got []string
		var refused error

		refuse := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			refused = err
		}
		changed := func(c *Config) error {
			mu.Lock()
			defer mu.Unlock()
			if refused != nil {
				return refused
			}
			got = append(got, found(c.Domain("d"), "k=v"))
			return nil
		}

		follow := func() (*Folder, error) { return Follow(dir, FolderOptions{Logger: logger}, changed) }

		// At the start a mistake is an error: there are no limits of before that could go on.
		if _, err := follow(); err == nil || !strings.Contains(err.Error(), "no file whose name ends with .yaml") {
			t.Errorf("an empty folder: %v", err)
		}

		write(t, dir, "a.yaml", limited("x"))
		if _, err := follow(); err == nil || !strings.Contains(err.Error(), `a.yaml:3: "x" is not a whole number`) {
			t.Errorf("a bad file: %v", err)
		}

		// What is not named *.yaml, what is hidden and what is a folder is not read.
		write(t, dir, "a.yaml", limited("1"))
		write(t, dir, ".hidden.yaml", "bad")
		write(t, dir, "notes.txt", "bad")
		must(t, os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o700))
		f, err := follow()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()

		// After two looks at the folder: the first sees the change, and the second that the text
		// is complete.
		step := func(want, logged string) {
			t.Helper()
			time.Sleep(2*DefaultPoll + time.Millisecond)
			synctest.Wait()
			mu.Lock()

			defer mu.Unlock()
			if got[len(got)-1] != want {
				t.Errorf("%q is in force, want %q", got[len(got)-1], want)
			}

			if lines := l.lines(); len(lines) != 1 || !strings.Contains(lines[0], logged) ||
				(logged == "") != (lines[0] == "") {
				t.Errorf("logged %q, want one line with %q", lines, logged)
			}
		}

		step("1/day v", "")
		write(t, dir, "a.yaml", limited("2"))
		step("2/day v", "new limits are in force")

		// A mistake is logged once, and what was in force goes on.
		write(t, dir, "a.yaml", limited("-2"))
		step("2/day v", `a.yaml:3: \"-2\" is not a whole number`)
		step("2/day v", "")

		// The limits are well-formed, and the one who follows them cannot use them.
		write(t, dir, "a.yaml", limited("3"))
		refuse(errors.New("refused"))
		step("2/day v", "error=refused")

		refuse(nil)
		write(t, dir, "a.yaml", limited("4"))
		step("4/day v", "new limits are in force")

		// A folder in which nothing is left is no wish for no limits.
		must(t, os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "a.txt")))
		step("4/day v", "no file whose name ends with .yaml")

		write(t, dir, "b.yml", limited("4"))
		step("4/day v", "new limits are in force")

		// A link to nowhere could be a file that is about to come.
		must(t, os.Symlink("nowhere", filepath.Join(dir, "c.yaml")))
		step("4/day v", "no such file")
	})
}

func TestFolderWaitsForCompleteFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var n atomic.Int32
		write(t, dir, "a.yaml", limited("1"))
		f, err := Follow(dir, FolderOptions{Logger: slog.New(slog.DiscardHandler)},
			func(*Config) error { n.Add(1); return nil })
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()

		for i := range 5 { // each look finds another text
			write(t, dir, "a.yaml", limited("1")+strings.Repeat("#", i))
			time.Sleep(DefaultPoll)
			synctest.Wait()
		}

		if n.Load() != 1 {
			t.Errorf("a file that was being written was used %d times, want 0", n.Load()-1)
		}

		time.Sleep(DefaultPoll)
		synctest.Wait()
		if n.Load() != 2 {
			t.Errorf("the complete file was used %d times, want 1", n.Load()-1)
		}
	})
}

// Two rewrites of a file may be found at the same point, with the whole file or none between them.
func TestFolderMistakesNoTwoRewritesForOne(t *testing.T) {
	for _, between := range []string{"the file in force", "no file"} {
		t.Run(between, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				whole, cut := limited("1")+"# the end", limited("1")
				write(t, dir, "a.yaml", whole)

				var n atomic.Int32
				logger := slog.New(slog.DiscardHandler)
				f, err := Follow(dir, FolderOptions{Logger: logger}, func(*Config) error { n.Add(1); return nil })
				must(t, err)
				defer f.Close()

				look := func() {
					time.Sleep(DefaultPoll)
					synctest.Wait()
				}
				time.Sleep(time.Millisecond) // the looks come after the writes

				write(t, dir, "a.yaml", cut)
				look()
				if between == "no file" {
					must(t, os.Remove(filepath.Join(dir, "a.yaml")))
				} else {
					write(t, dir, "a.yaml", whole)
				}
				look()
				write(t, dir, "a.yaml", cut)
				look()
				if n.Load() != 1 {
					t.Errorf("a file that was cut off in two rewrites was used %d times, want 0", n.Load()-1)
				}

				look()
				if n.Load() != 2 {
					t.Errorf("a file that two looks in turn have found was used %d times, want 1", n.Load()-1)
				}
			})
		})
	}
}
