//go:build unix

package store

import (
	"os"
	"syscall"
)

// giveToOwner gives a file to the owner and the group of another one, unless it has the owner
// already.
func giveToOwner(path, other string) error {
	to, err := os.Stat(other)
	if err != nil {
		return err
	}
	from, err := os.Stat(path)
	if err != nil {
		return err
	}

	want, ok := to.Sys().(*syscall.Stat_t)
	is, known := from.Sys().(*syscall.Stat_t)
	if !ok || !known || is.Uid == want.Uid {
		return nil
	}
	return os.Chown(path, int(want.Uid), int(want.Gid))
}
