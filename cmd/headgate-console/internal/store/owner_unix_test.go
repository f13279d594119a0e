//go:build unix

package store

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// ownerOf returns the user that a file belongs to.
func ownerOf(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

func TestRestoreByRootKeepsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	backup := backupOf(t, "new").path
	const service, other = 12345, 23456

	// The directory decides only if there is no file yet.
	dir := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(dir, "console.db")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chown(dir, service, service))
	must(t, Restore(t.Context(), "sqlite://"+file, backup, false))
	if got := ownerOf(t, file); got != service {
		t.Errorf("a new file belongs to %d", got)
	}

	must(t, os.Chown(file, other, other))
	must(t, Restore(t.Context(), "sqlite://"+file, backup, true))
	if got := ownerOf(t, file); got != other {
		t.Errorf("a file that was there belongs to %d", got)
	}
	if got := mode(t, file); got != "-rw-------" {
		t.Errorf("its mode is %s", got)
	}
}

func TestRestoreFollowsLinks(t *testing.T) {
	backup := backupOf(t, "new").path
	dir := t.TempDir()
	disk, data := filepath.Join(dir, "disk"), filepath.Join(dir, "data")
	must(t, os.Mkdir(disk, 0o700))
	must(t, os.Mkdir(data, 0o700))

	// One link is relative and leads to another one, whose file is missing at first.
	link, file := filepath.Join(data, "console.db"), filepath.Join(disk, "real.db")
	must(t, os.Symlink("../data/second", link))
	must(t, os.Symlink(file, filepath.Join(data, "second")))
	for _, force := range []bool{false, true} {
		must(t, Restore(t.Context(), "sqlite://"+link, backup, force))
		if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
			t.Fatalf("the link is %v, %v", info, err)
		}

		db, err := Open(t.Context(), Options{URL: "sqlite://" + file, Timeout: patience})
		must(t, err)
		if n := count(t, db, "SELECT COUNT(*) FROM users WHERE name = 'new'"); n != 1 {
			t.Errorf("%d users are restored", n)
		}
		exec(t, db, "DELETE FROM users")
		must(t, db.Close())
	}

	// A link to itself is no place for a file.
	circle := filepath.Join(data, "circle")
	must(t, os.Symlink(circle, circle))
	if err := Restore(t.Context(), "sqlite://"+circle, backup, true); err == nil {
		t.Error("a circle was restored")
	}
}
