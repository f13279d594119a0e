package test

import (
	"os"
	"testing"
)

// MemoryDir returns a new directory for the database of a test, which the end of t removes. It is
// in memory where the system has room for it there. Tests kill programs and never the machine, so
// a disk would keep nothing more, and a commit to it takes longer than the rest of a small test.
//
// A process that is killed leaves its directories in memory. A later call of MemoryDir by the same
// user removes them.
func MemoryDir(t testing.TB) string {
	t.Helper()
	dir, remove, err := memoryDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	return dir
}

// memoryPrefix begins the names of these directories.
const memoryPrefix = "headgate-test-"

// diskDir makes a directory where the system keeps temporary files.
func diskDir() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", memoryPrefix)
	return dir, func() { os.RemoveAll(dir) }, err
}
