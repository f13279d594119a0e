package test

import (
	"os/exec"
	"runtime"
)

// Launch starts a program. On Linux it ends with the test binary, also if that is killed. The
// channel is closed when the program has ended; cmd.ProcessState says how.
func Launch(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	cmd.SysProcAttr = dieWithParent()
	started, done := make(chan error), make(chan struct{})

	go func() {
		// The kernel's signal is tied to the thread that starts the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)

		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
	}()
	return done, <-started
}
