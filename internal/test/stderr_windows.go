package test

import "os"

// openParentStderr opens the console, as Windows does not show the standard error
// of another process.
func openParentStderr() (*os.File, error) { return os.OpenFile("CONOUT$", os.O_WRONLY, 0) }
