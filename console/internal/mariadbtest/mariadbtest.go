// Package mariadbtest gives tests a real MariaDB: a mariadbd of their own with a
// temporary directory on a free loopback port, which ends with the tests, also if
// the test binary is killed (on Linux).
package mariadbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	my "github.com/go-sql-driver/mysql"
	"github.com/headgate/headgate/internal/test"
)

// patience is how long a server may take to get ready. It ends a test whose
// server hangs, and is far more than a busy machine needs.
const patience = 3 * time.Minute

// user may do everything.
const user = "headgate"

// Server is a mariadbd.
type Server struct {
	// Addr is its address, which Restart keeps.
	Addr string

	path     string
	dir      string
	password string // of the user, which no other server knows
	process  *os.Process
	done     chan struct{} // closed when the process has ended
}

// Start starts a server with a user who may do everything, and waits until it
// answers. Without MariaDB the test is left out; see [test.Missing]. Other ports
// are tried if another program takes the one that was found free.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{path: program(t, "mariadbd"), dir: t.TempDir(), password: rand.Text()}
	s.install(t, program(t, "mariadb-install-db"))
	t.Cleanup(s.Kill)
	for range 10 {
		s.Addr = freeAddr(t)
		s.launch(t)
		if s.await(t) {
			return s
		}
	}
	t.Fatalf("mariadbd does not start:\n%s", s.log())
	return nil
}

// program finds a program of MariaDB, of which Debian puts one where the PATH of
// most users does not lead.
func program(t testing.TB, name string) string {
	t.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	test.Missing(t, name+" is not in PATH; the Debian package mariadb-server brings it")
	return ""
}

// install writes the system's tables, and a file that makes the user.
func (s *Server) install(t testing.TB, path string) {
	t.Helper()
	args := append(s.storage(), "--auth-root-authentication-method=normal", "--skip-test-db")
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}
	text := "CREATE USER IF NOT EXISTS '" + user + "'@'127.0.0.1' IDENTIFIED BY '" + s.password + "';\n" +
		"GRANT ALL ON *.* TO '" + user + "'@'127.0.0.1';\n"
	if err := os.WriteFile(filepath.Join(s.dir, "init.sql"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// storage says where and how files are kept. A server that starts removes the
// temporary tables of all others from its directory for them, so each has its own.
// Only the process is ever killed, never the machine, so nothing has to reach the
// disk at once.
func (s *Server) storage() []string {
	return []string{"--no-defaults", "--user=" + account(), "--datadir=" + s.data(), "--tmpdir=" + s.dir,
		"--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync"}
}

// account is the one that the server runs as: it asks root to say so.
func account() string {
	if os.Getuid() == 0 {
		return "root"
	}
	return os.Getenv("USER")
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// freeAddr returns an address on a port that is free, and that the system gives to
// no other program which asks for any port: Restart needs it once more.
func freeAddr(t testing.TB) string {
	t.Helper()
	const lowest, end = 10000, 32768
	for range 1000 {
		n, err := rand.Int(rand.Reader, big.NewInt(end-lowest))
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.FormatInt(lowest+n.Int64(), 10)))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().String()
	}
	t.Fatal("no port is free")
	return ""
}

// launch runs the process. The goroutine that starts it keeps its thread until
// the process has ended, as the kernel's parent death signal is tied to it.
func (s *Server) launch(t testing.TB) {
	t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	cmd := exec.Command(s.path, append(s.storage(), "--bind-address=127.0.0.1", "--port="+port, "--skip-name-resolve",
		"--socket="+filepath.Join(s.dir, "s"), "--pid-file="+filepath.Join(s.dir, "pid"),
		"--init-file="+filepath.Join(s.dir, "init.sql"), "--log-error="+filepath.Join(s.dir, "log"),
		"--innodb-buffer-pool-size=64M")...)
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
		t.Fatal(err)
	}
	s.process, s.done = cmd.Process, done
}

// await waits until the server answers, and returns false when it has ended
// instead.
func (s *Server) await(t testing.TB) bool {
	t.Helper()
	db := s.open(t)
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
			t.Fatalf("mariadbd: not within %s\n%s", patience, s.log())
		case <-tick.C:
		}
	}
	return true
}

func (s *Server) open(t testing.TB) *sql.DB {
	t.Helper()
	c := my.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd = "tcp", s.Addr, user, s.password
	c.Logger = &my.NopLogger{}
	connector, err := my.NewConnector(c)
	if err != nil {
		t.Fatal(err)
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

// ended reports whether the process has ended.
func (s *Server) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Restart kills the server and starts it at the same address with its data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	s.launch(t)
	if !s.await(t) {
		t.Fatalf("mariadbd does not start again:\n%s", s.log())
	}
}

// Database creates an empty database, which ends with the test t, and returns its
// URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := "t" + strings.ToLower(rand.Text())
	s.exec(t, "CREATE DATABASE "+name)
	t.Cleanup(func() { s.exec(t, "DROP DATABASE "+name) })
	return "mysql://" + user + ":" + s.password + "@" + s.Addr + "/" + name
}

func (s *Server) exec(t testing.TB, statement string) {
	t.Helper()
	db := s.open(t)
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Error(err)
	}
}

// Shared starts one server at the first call, for many tests, which take turns.
// TestMain ends it.
type Shared struct {
	once   sync.Once
	server *Server
	owner  *owner
}

// Server returns the server; see [Start]. It starts a server again that an earlier
// test has left dead.
func (s *Shared) Server(t testing.TB) *Server {
	t.Helper()
	program(t, "mariadbd")
	s.once.Do(func() {
		s.owner = &owner{TB: t}
		s.server = Start(s.owner)
	})
	if s.server == nil {
		t.Fatal("mariadbd did not start for an earlier test")
	}
	if s.server.ended() {
		s.server.Restart(t)
	}
	return s.server
}

// Close ends the server, if it was started.
func (s *Shared) Close() {
	if s.owner != nil {
		s.owner.end()
	}
}

// owner is a test whose end TestMain decides.
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
