package test_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
)

// In the place of /dev/shm is a directory that no other process uses.
func TestMemoryDirOfADeadProcess(t *testing.T) {
	parent, me := t.TempDir(), os.Geteuid()
	used, remove, err := test.MemoryDirIn(parent, 0)
	if err != nil || filepath.Dir(used) != parent {
		t.Fatal(used, err)
	}

	// Only the first goes: it has the prefix, is old enough, belongs to this user, and no process
	// has it locked.
	type row struct {
		name  string
		age   time.Duration
		owner int
		kept  bool
	}

	rows := []row{
		{"headgate-test-abandoned", time.Minute, me, false},
		{"headgate-test-new", 0, me, true},
		{"headgate-other", time.Hour, me, true},
		{filepath.Base(used), time.Hour, me, true},
	}
	if me == 0 { // others can neither make nor remove what belongs to another user
		rows = append(rows, row{"headgate-test-foreign", time.Hour, 1, true})
	}

	for _, row := range rows {
		dir, at := filepath.Join(parent, row.name), time.Now().Add(-row.age)
		if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, row.owner, -1); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, at, at); err != nil {
			t.Fatal(err)
		}
	}

	onDisk, removeIt, err := test.MemoryDirIn(parent, math.MaxUint64) // there is no room, before and after
	if err != nil || filepath.Dir(onDisk) != filepath.Clean(os.TempDir()) {
		t.Fatal(onDisk, err)
	}
	removeIt()

	// Both calls have looked through the directories, and only the abandoned one is gone.
	for _, row := range rows {
		if _, err := os.Stat(filepath.Join(parent, row.name)); (err == nil) != row.kept {
			t.Errorf("%s is kept: %v, want %v", row.name, err == nil, row.kept)
		}
	}

	remove()
	for _, dir := range []string{used, onDisk} {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is not removed: %v", dir, err)
		}
	}
}
