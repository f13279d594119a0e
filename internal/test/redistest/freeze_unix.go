//go:build !windows

package redistest

import "syscall"

func (s *Server) freeze() { s.signal(syscall.SIGSTOP) }

func (s *Server) thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}
