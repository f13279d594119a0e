//go:build !linux && !windows

package test

import "os"

// openParentStderr opens the terminal, as the standard error of another process
// cannot be opened.
func openParentStderr() (*os.File, error) { return os.OpenFile("/dev/tty", os.O_WRONLY, 0) }
