package mariadbtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// dieWithParent makes the kernel kill the server when the test binary dies.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// Freeze stops the server as if its machine hung, until Thaw or the end of the test
// t. The kernel stops a process some time after the signal, so Freeze waits until
// all threads have stopped.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Thaw)

	for deadline := time.Now().Add(patience); !s.stopped(t); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("mariadbd does not stop within %s", patience)
		}
	}
}

// Thaw lets a frozen server go on. A server that runs or has ended stays as it is.
func (s *Server) Thaw() { s.process.Signal(syscall.SIGCONT) }

// stopped reports whether every thread of the server is stopped. The state follows
// the program's name in the file stat.
func (s *Server) stopped(t testing.TB) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.process.Pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("mariadbd has no threads: %v", err)
	}

	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil { // the thread has just ended
			return false
		}

		// The program's name may hold a bracket itself, so the last one counts.
		if end := bytes.LastIndexByte(text, ')'); !bytes.HasPrefix(text[end+1:], []byte(" T ")) {
			return false
		}
	}
	return true
}
