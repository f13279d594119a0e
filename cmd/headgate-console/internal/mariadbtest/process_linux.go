package mariadbtest

import (
	"syscall"
	"testing"
)

// Freeze stops the server as if its machine hung, until Thaw or the end of the test t. The kernel
// stops a process some time after the signal, and tells its parent once all threads have stopped.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Thaw)

	var status syscall.WaitStatus
	if _, err := syscall.Wait4(s.process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("mariadbd does not stop: %v, %v", status, err)
	}
}

// Thaw lets a frozen server go on. A server that runs or has ended stays as it is.
func (s *Server) Thaw() { s.process.Signal(syscall.SIGCONT) }
