package test

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// memoryDir makes a directory in memory if there is room for the database servers of several
// packages, and otherwise on disk.
func memoryDir() (dir string, remove func(), err error) { return memoryDirIn("/dev/shm", 1<<30) }

// memoryDirIn makes a directory in parent if that has room for so many bytes, once what killed
// processes left in it is removed. The process holds a lock on the directory until it ends.
func memoryDirIn(parent string, room uint64) (dir string, remove func(), err error) {
	removeAbandoned(parent)
	if !hasRoom(parent, room) {
		return diskDir()
	}
	if dir, err = os.MkdirTemp(parent, memoryPrefix); err != nil {
		return "", nil, err
	}
	held, err := lock(dir)
	return dir, func() {
		os.RemoveAll(dir)
		held.Close()
	}, err
}

// hasRoom reports whether a directory can be written and has room for so many bytes.
func hasRoom(dir string, room uint64) bool {
	const writable = 2
	var s syscall.Statfs_t
	return syscall.Statfs(dir, &s) == nil && s.Bavail*uint64(s.Bsize) >= room && syscall.Access(dir, writable) == nil
}

// removeAbandoned removes the directories of the user's processes that have ended: those without a
// lock. It leaves those of the last minute, which a process may be about to lock.
func removeAbandoned(parent string) {
	list, _ := filepath.Glob(filepath.Join(parent, memoryPrefix+"*")) // the pattern is right
	for _, dir := range list {
		info, err := os.Lstat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			continue
		}
		if held, err := lock(dir); err == nil {
			os.RemoveAll(dir)
			held.Close()
		}
	}
}

// lock opens a directory and locks it, unless another process has it locked.
func lock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, os.NewSyscallError("flock", err)
	}
	return f, nil
}
