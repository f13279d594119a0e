//go:build unix

package store

import (
	"os"
	"strconv"
	"syscall"
)

// inode returns a text for the file at a path that stays the same while the file is renamed, or
// "" where that is not known. It has the device and the host: each disk counts its files from the
// same small numbers.
func inode(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		return ""
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return strconv.FormatUint(uint64(stat.Dev), 10) + ":" + strconv.FormatUint(uint64(stat.Ino), 10) + "@" + host
	}
	return ""
}
