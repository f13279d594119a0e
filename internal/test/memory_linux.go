package test

import "syscall"

// memory returns a directory in memory that can be written, with room for the database servers of
// several packages, or "" if there is none.
func memory() string {
	const dir, room, writable = "/dev/shm", 1 << 30, 2
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil || s.Bavail*uint64(s.Bsize) < room || syscall.Access(dir, writable) != nil {
		return ""
	}
	return dir
}
