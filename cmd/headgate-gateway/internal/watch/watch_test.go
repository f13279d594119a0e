package watch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// do fails the test at an error.
func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// looks is a Files with what was read of one path.
type looks struct {
	t    *testing.T
	path string
	read map[string]Sum
	Files
}

func begin(t *testing.T, path string) *looks {
	t.Helper()
	_, sum, err := Read(path)
	do(t, err)
	l := &looks{t: t, path: path, read: map[string]Sum{path: sum}}
	l.want("at first", false, false)
	l.want("as it was", false, true)
	return l
}

func (l *looks) want(when string, changed, settled bool) {
	l.t.Helper()
	if c, s := l.Look(l.read, time.Now()); c != changed || s != settled {
		l.t.Errorf("%s: changed %v, settled %v, want %v, %v", when, c, s, changed, settled)
	}
}

func TestAFileIsReportedWhenItIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	do(t, os.WriteFile(path, []byte("one"), 0o600))
	l := begin(t, path)

	// It is written in pieces, is gone in between, and is whole in the end.
	do(t, os.WriteFile(path, []byte("t"), 0o600))
	l.want("half of it", true, false)
	do(t, os.WriteFile(path, []byte("tw"), 0o600))
	l.want("more of it", true, false)
	do(t, os.Remove(path))
	l.want("gone", true, false)
	l.want("still gone", true, true)
	do(t, os.WriteFile(path, []byte("two"), 0o600))
	l.want("another", true, false)
	l.want("whole", true, true)

	// The former contents are no change, whatever the time of the file.
	do(t, os.WriteFile(path, []byte("one"), 0o600))
	do(t, os.Chtimes(path, time.Now(), time.Now()))
	l.want("as it was read, but not at the last look", false, false)
	l.want("as it was read", false, true)
}

// A change that leaves size and time as they were is seen by the identity of the file.
func TestAFileThatTakesThePlaceOfAnother(t *testing.T) {
	dir := t.TempDir()
	path, next := filepath.Join(dir, "x"), filepath.Join(dir, "y")
	long := time.Now().Add(-time.Hour)
	do(t, os.WriteFile(path, []byte("one"), 0o600))
	do(t, os.Chtimes(path, long, long))
	l := begin(t, path)

	do(t, os.WriteFile(next, []byte("two"), 0o600))
	do(t, os.Chtimes(next, long, long))
	do(t, os.Rename(next, path))
	l.want("renamed", true, false)
	l.want("renamed", true, true)
}

// Two changes within the resolution of the clock of the file system have one time.
func TestAChangeWithTheTimeOfTheOneBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	at := time.Now()
	do(t, os.WriteFile(path, []byte("one"), 0o600))
	do(t, os.Chtimes(path, at, at))
	l := begin(t, path)
	do(t, os.WriteFile(path, []byte("two"), 0o600))
	do(t, os.Chtimes(path, at, at))
	l.want("of one time", true, false)
}

// Kubernetes changes a volume by one rename of a symbolic link to its folder.
func TestAVolumeOfKubernetes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"..1": "one", "..2": "two"} {
		do(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		do(t, os.WriteFile(filepath.Join(dir, name, "x"), []byte(text), 0o600))
	}
	do(t, os.Symlink("..1", filepath.Join(dir, "..data")))
	do(t, os.Symlink(filepath.Join("..data", "x"), filepath.Join(dir, "x")))
	l := begin(t, filepath.Join(dir, "x"))

	do(t, os.Symlink("..2", filepath.Join(dir, "..tmp")))
	do(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	l.want("another folder", true, false)
	l.want("another folder", true, true)
}

func TestReadBoundsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	do(t, os.WriteFile(path, []byte(strings.Repeat("x", MaxFile)), 0o600))
	if text, sum, err := Read(path); err != nil || len(text) != MaxFile || sum == (Sum{}) {
		t.Errorf("%d bytes: %v", len(text), err)
	}
	do(t, os.WriteFile(path, []byte(strings.Repeat("x", MaxFile+1)), 0o600))
	if text, sum, err := Read(path); err == nil || text != nil || sum != (Sum{}) {
		t.Errorf("%d bytes were read", len(text))
	}
	if _, _, err := Read(path + "x"); err == nil {
		t.Error("a file that is not there was read")
	}
}
