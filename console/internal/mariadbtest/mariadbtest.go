// Package mariadbtest gives tests a real MariaDB: a mariadbd of their own with a
// temporary directory on a free loopback port. It ends with the test that asked
// for it, also if the test binary is killed (on Linux).
package mariadbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	my "github.com/go-sql-driver/mysql"
)

// patience is how long a server may take to get ready.
const patience = 60 * time.Second

const (
	user     = "headgate"
	password = "headgate"
)

// Server is a mariadbd.
type Server struct {
	// Addr is its address, which Restart keeps.
	Addr string

	t       testing.TB
	path    string
	dir     string
	process *os.Process
	done    chan struct{} // closed when the process has ended
}

// Start starts a server with a user who may do everything, and waits until it
// answers. Without mariadbd in PATH the test is skipped with a loud message, or
// fails if HEADGATE_REQUIRE_MARIADB is 1.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, path: binary(t, "mariadbd"), dir: t.TempDir()}
	s.install(binary(t, "mariadb-install-db"))
	t.Cleanup(s.Kill)
	for range 10 {
		s.Addr = freeAddr(t)
		s.launch()
		if s.await() {
			return s
		}
	}
	t.Fatalf("mariadbd does not start:\n%s", s.log())
	return nil
}

// binary finds a program of MariaDB.
func binary(t testing.TB, name string) string {
	t.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	message := strings.Join([]string{
		"",
		"**********************************************************************",
		"* REAL MARIADB WAS NOT EXERCISED: " + name + " is not in PATH.",
		"* Install mariadb-server. HEADGATE_REQUIRE_MARIADB=1 turns this skip",
		"* into a failure.",
		"**********************************************************************",
	}, "\n")
	if os.Getenv("HEADGATE_REQUIRE_MARIADB") == "1" {
		t.Fatal(message)
	}
	t.Skip(message)
	return ""
}

// install writes the system's tables, and a file that makes the user.
func (s *Server) install(path string) {
	s.t.Helper()
	out, err := exec.Command(path, "--no-defaults", "--datadir="+s.data(), "--auth-root-authentication-method=normal",
		"--skip-test-db", "--user="+account()).CombinedOutput()
	if err != nil {
		s.t.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}
	text := "CREATE USER IF NOT EXISTS '" + user + "'@'127.0.0.1' IDENTIFIED BY '" + password + "';\n" +
		"GRANT ALL ON *.* TO '" + user + "'@'127.0.0.1';\n"
	if err := os.WriteFile(filepath.Join(s.dir, "init.sql"), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// account is the one that the server runs as: it asks root to say so.
func account() string {
	if os.Getuid() == 0 {
		return "root"
	}
	return os.Getenv("USER")
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func freeAddr(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// launch runs the process. The goroutine that starts it keeps its thread until
// the process has ended, as the kernel's parent death signal is tied to it.
func (s *Server) launch() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	cmd := exec.Command(s.path, "--no-defaults", "--user="+account(), "--datadir="+s.data(),
		"--bind-address=127.0.0.1", "--port="+port, "--socket="+filepath.Join(s.dir, "s"), "--skip-name-resolve",
		"--pid-file="+filepath.Join(s.dir, "pid"), "--init-file="+filepath.Join(s.dir, "init.sql"),
		"--log-error="+filepath.Join(s.dir, "log"), "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=2")
	cmd.SysProcAttr = dieWithParent()
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		s.t.Fatal(err)
	}
	s.process, s.done = cmd.Process, done
}

// await waits until the server answers, and returns false when it has ended
// instead.
func (s *Server) await() bool {
	s.t.Helper()
	db := s.open("")
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for db.PingContext(ctx) != nil {
		select {
		case <-s.done:
			return false
		case <-ctx.Done():
			s.t.Fatalf("mariadbd: not within %s\n%s", patience, s.log())
		case <-tick.C:
		}
	}
	return true
}

func (s *Server) open(database string) *sql.DB {
	s.t.Helper()
	c := my.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd, c.DBName = "tcp", s.Addr, user, password, database
	c.Logger = &my.NopLogger{}
	connector, err := my.NewConnector(c)
	if err != nil {
		s.t.Fatal(err)
	}
	return sql.OpenDB(connector)
}

func (s *Server) log() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Kill ends the server without warning and waits for its end. To kill a server
// that has ended is no fault.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	s.process.Kill()
	<-s.done
}

// Restart kills the server and starts it at the same address with its data.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.launch()
	if !s.await() {
		s.t.Fatalf("mariadbd does not start again:\n%s", s.log())
	}
}

// Freeze stops the server as if its machine hung, until Thaw. The kernel stops it
// some time after the signal, so Freeze waits until it no longer greets.
func (s *Server) Freeze() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	for s.greets() {
	}
}

// greets tells whether the server says the first word to a client.
func (s *Server) greets() bool {
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return false
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		return false
	}
	_, err = c.Read(make([]byte, 1))
	return err == nil
}

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Database creates an empty database, which ends with the test t, and returns its
// URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := "t" + strings.ToLower(rand.Text())
	s.exec(t, "CREATE DATABASE "+name)
	t.Cleanup(func() { s.exec(t, "DROP DATABASE "+name) })
	return "mysql://" + user + ":" + password + "@" + s.Addr + "/" + name
}

func (s *Server) exec(t testing.TB, statement string) {
	t.Helper()
	db := s.open("")
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Error(err)
	}
}

// Shared starts one server at the first call, for many tests. TestMain ends it.
type Shared struct {
	once   sync.Once
	server *Server
	owner  *owner
}

// Server returns the server; see [Start].
func (s *Shared) Server(t testing.TB) *Server {
	t.Helper()
	binary(t, "mariadbd")
	s.once.Do(func() {
		s.owner = &owner{TB: t}
		s.server = Start(s.owner)
	})
	if s.server == nil {
		t.Fatal("mariadbd did not start for an earlier test")
	}
	return s.server
}

// Close ends the server, if it was started.
func (s *Shared) Close() {
	if s.owner != nil {
		s.owner.end()
	}
}

// owner is a test whose end is somebody else's.
type owner struct {
	testing.TB
	ends []func()
	dir  string
}

func (o *owner) Cleanup(f func()) { o.ends = append(o.ends, f) }

func (o *owner) TempDir() string {
	dir, err := os.MkdirTemp("", "mariadbtest")
	if err != nil {
		o.TB.Fatal(err)
	}
	o.dir = dir
	return dir
}

func (o *owner) end() {
	for _, f := range o.ends {
		f()
	}
	os.RemoveAll(o.dir)
}
