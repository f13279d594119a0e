package test

import (
	"fmt"
	"os"
)

// openParentStderr opens the standard error of the parent process, which is the go
// command when it runs tests.
func openParentStderr() (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", os.Getppid()), os.O_WRONLY|os.O_APPEND, 0)
}
