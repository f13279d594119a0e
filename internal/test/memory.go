package test

import (
	"os"
	"testing"
)

// MemoryDir returns a new directory for the database of a test, which the end of t removes. It is
// in memory where the system has room for it there. Tests kill programs and never the machine, so
// a disk would keep nothing more, and a commit to it takes longer than the rest of a small test.
func MemoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(memory(), "headgate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
