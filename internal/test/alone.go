package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Alone reports whether the test has the process for itself. If not, Alone runs it in a process of
// its own, fails it if it fails there, and returns false: the caller then returns at once. A test
// that measures the heap calls it, because what other tests leave behind is freed at any time and
// would count.
func Alone(t *testing.T) bool {
	t.Helper()
	const mark = "HEADGATE_ALONE"
	if os.Getenv(mark) == t.Name() {
		return true
	}

	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), program, "-test.v", "-test.run=^"+t.Name()+"$",
		fmt.Sprintf("-test.short=%t", testing.Short()))
	c.Env = append(os.Environ(), mark+"="+t.Name())

	// The program of an emulator can start no other of its kind.
	out, err := c.CombinedOutput()
	if errors.Is(err, syscall.ENOEXEC) {
		return true
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}
