//go:build !linux

package mariadbtest

import (
	"testing"

	"github.com/headgate/headgate/internal/test"
)

// Freeze leaves the test out, because only Linux shows when all threads of a server
// have stopped.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	test.Skip(t, "a MariaDB can be frozen on Linux only")
}

// Thaw does nothing, as no server was frozen.
func (s *Server) Thaw() {}
