package redistest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
)

// Server is a redis-server of this test.
type Server struct {
	// Addr is its address, which Restart keeps.
	Addr string

	t    testing.TB
	path string
	args []string
	dir  string

	process *os.Process
	done    <-chan struct{} // closed when the process has ended
}

// Start starts a redis-server without persistence on a free loopback port, with
// args added to its command line, and waits until it answers. It ends with the
// test. Without redis-server in PATH the test is left out, as by [test.Program]. If
// HEADGATE_REDIS_SERVER names a program, that one is started, or fails the test.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, func() []string { return append(transient(), args...) })
}

// transient are the arguments of a server that keeps nothing on disk.
func transient() []string { return []string{"--save", "", "--appendonly", "no"} }

// start starts redis-server on a free port. If another process takes the port
// before the server does, the server ends at once, and start tries another
// port, with new arguments from args.
func start(t testing.TB, args func() []string) *Server {
	t.Helper()
	s := &Server{t: t, path: program(t), dir: t.TempDir()}
	t.Cleanup(s.Kill)

	for range 10 {
		s.Addr, s.args = freeport.Addr(t), args()
		s.launch()
		if s.await() {
			return s
		}
	}
	t.Fatalf("%s does not start:\n%s", s.path, s.log())
	return nil
}

// launch runs the process.
func (s *Server) launch() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	args := append(s.args[:len(s.args):len(s.args)],
		"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", filepath.Join(s.dir, "log"))

	// What a server writes before it opens its log goes to a file too.
	cmd := exec.Command(s.path, args...)
	output, err := os.Create(filepath.Join(s.dir, "output"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output

	if s.done, err = test.Launch(cmd); err != nil {
		s.t.Fatal(err)
	}
	s.process = cmd.Process
}

// await waits until this process answers on the port or ends, and reports whether
// it answers.
func (s *Server) await() bool {
	s.t.Helper()
	c := dial(s.t, s.Addr)
	defer c.Close()

	// Another process may have taken the port, so that the one which answers has to be this.
	mine := fmt.Sprintf("process_id:%d\r\n", s.process.Pid)
	alive := true
	until(s.t, s.Addr, func(ctx context.Context) bool {
		select {
		case <-s.done:
			alive = false
			return true
		default:
		}

		// A client of Redis would dial again and again where no server listens yet.
		conn, err := net.Dial("tcp", s.Addr)
		if err != nil {
			return false
		}
		conn.Close()
		info, err := c.Info(ctx, "server").Result()
		return err == nil && strings.Contains(info, mine) && c.Ping(ctx).Err() == nil
	})
	return alive
}

// log returns the output of the server, which has its errors until it opens its log,
// and the log.
func (s *Server) log() string {
	var all []byte
	for _, name := range []string{"output", "log"} {
		text, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err.Error()
		}
		all = append(all, text...)
	}
	return string(all)
}

// Pid returns the number of the server's process, which Restart changes.
func (s *Server) Pid() int { return s.process.Pid }

// Kill ends the server without warning and waits for its end. Killing a server
// that has ended does nothing.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	s.process.Kill()
	<-s.done
}

// Restart kills the server and starts it empty at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	for range 10 { // another test may look for a free port at this moment
		s.launch()
		if s.await() {
			return
		}
	}
	s.t.Fatalf("%s does not start again:\n%s", s.path, s.log())
}

// Freeze stops the server as if its machine hung: connections stay open and the
// server does not answer until Thaw. On Windows it leaves the test out, so the
// test's own goroutine has to call it.
func (s *Server) Freeze() { s.t.Helper(); s.freeze() }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { s.t.Helper(); s.thaw() }
