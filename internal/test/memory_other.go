//go:build !linux

package test

// memoryDir makes a directory on disk, because only Linux has one in memory that is always at the
// same place.
func memoryDir() (dir string, remove func(), err error) { return diskDir() }
