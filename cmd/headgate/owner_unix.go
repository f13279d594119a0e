//go:build unix

package main

import (
	"os"
	"syscall"
)

// keepOwner gives a new file the owner and the group of another.
func keepOwner(f *os.File, as os.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}

	// A file that has them already needs no right to change them.
	is, ok1 := info.Sys().(*syscall.Stat_t)
	want, ok2 := as.Sys().(*syscall.Stat_t)
	if !ok1 || !ok2 || is.Uid == want.Uid && is.Gid == want.Gid {
		return nil
	}
	return f.Chown(int(want.Uid), int(want.Gid))
}
