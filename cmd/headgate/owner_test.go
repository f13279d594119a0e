//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestFmtFollowsLinks(t *testing.T) {
	path := file(t, "limits.yaml", spreadText)
	link := filepath.Join(t.TempDir(), "link.yaml")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}

	// The link stays one, and leads to the new text.
	call(t, "", "fmt", "-w", link).want(t, fine)
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	call(t, "", "fmt", "-d", path).want(t, fine)
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".headgate-fmt-*")); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

func TestFmtKeepsTheOwner(t *testing.T) {
	path := file(t, "limits.yaml", spreadText)
	if err := os.Chown(path, 4321, 1234); err != nil {
		t.Skip("only root gives files away:", err)
	}

	call(t, "", "fmt", "-w", path).want(t, fine)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid != 4321 || s.Gid != 1234 || info.Mode().Perm() != 0o640 {
		t.Errorf("it belongs to %d and %d with %v", s.Uid, s.Gid, info.Mode())
	}
}
