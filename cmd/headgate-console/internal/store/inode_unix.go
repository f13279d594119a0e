//go:build unix

package store

import (
	"os"
	"strconv"
	"syscall"
)

// inode returns a text for the file at a path that stays the same while the file is renamed, or
// "" where that is not known.
func inode(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return strconv.FormatUint(uint64(stat.Ino), 10)
	}
	return ""
}
