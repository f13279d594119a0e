// Package mariadbtest starts a real MariaDB for tests: a mariadbd with a temporary directory on a
// free loopback port. It ends with the tests. On Linux it also ends if the test binary is killed.
// [Start] returns a [Server].
package mariadbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	my "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
)

// patience is how long a server may take to get ready. It ends a test whose
// server hangs, and is far more than a busy machine needs.
const patience = 3 * time.Minute

// user is the name of the database user, which has all privileges.
const user = "headgate"

// Server is a mariadbd.
type Server struct {
	// Addr is "host:port". Restart keeps it.
	Addr string

	path     string
	dir      string
	password string // of the user, which no other server knows
	process  *os.Process
	done     <-chan struct{} // closed when the process has ended
}

// Start starts a server and waits until it answers. Without MariaDB the test is left
// out; see [test.Missing]. If another program takes the port that was free, Start
// tries other ports.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{path: program(t, "mariadbd"), dir: t.TempDir(), password: rand.Text()}
	s.install(t, program(t, "mariadb-install-db"))

	// A free port may be taken before the server has it, and the server ends then. Ten in a row
	// mean another reason.
	t.Cleanup(s.Kill)
	for range 10 {
		s.Addr = freeport.Addr(t)
		s.launch(t)
		if s.await(t) {
			return s
		}
	}

	t.Fatalf("mariadbd does not start:\n%s", s.log())
	return nil
}

// program finds a program of MariaDB. It also looks in /usr/sbin, where Debian puts
// mariadbd, because the PATH of most users does not have it.
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

// install writes the system's tables, and a file of SQL that creates the user.
func (s *Server) install(t testing.TB, path string) {
	t.Helper()
	args := append(s.storage(), "--auth-root-authentication-method=normal", "--skip-test-db")
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}

	// Every start runs this file, a restart on the same data too.
	text := "CREATE USER IF NOT EXISTS '" + user + "'@'127.0.0.1' IDENTIFIED BY '" + s.password + "';\n" +
		"GRANT ALL ON *.* TO '" + user + "'@'127.0.0.1' WITH GRANT OPTION;\n"
	if err := os.WriteFile(filepath.Join(s.dir, "init.sql"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// storage returns the flags for files. A server that starts removes the temporary
// tables in its tmpdir, so each server has its own. Tests kill only the process and
// not the machine, so no write has to reach the disk at once.
func (s *Server) storage() []string {
	return []string{"--no-defaults", "--user=" + account(), "--datadir=" + s.data(), "--tmpdir=" + s.dir,
		"--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync"}
}

// account returns the system user that the server runs as. As root, mariadbd starts
// only if the flag names root.
func account() string {
	if os.Getuid() == 0 {
		return "root"
	}
	return os.Getenv("USER")
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// launch runs the process.
func (s *Server) launch(t testing.TB) {
	t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	cmd := exec.Command(s.path, append(s.storage(), "--bind-address=127.0.0.1", "--port="+port, "--skip-name-resolve",
		"--socket="+filepath.Join(s.dir, "s"), "--pid-file="+filepath.Join(s.dir, "pid"),
		"--init-file="+filepath.Join(s.dir, "init.sql"), "--log-error="+filepath.Join(s.dir, "log"),
		"--innodb-buffer-pool-size=64M")...)
	var err error
	if s.done, err = test.Launch(cmd); err != nil {
		t.Fatal(err)
	}
	s.process = cmd.Process
}

// await waits until the server answers, and returns false if it ends instead.
func (s *Server) await(t testing.TB) bool {
	t.Helper()
	db := s.open(t)
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	// The server does not say when it is ready, so it is asked again and again.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for db.PingContext(ctx) != nil {
		select {
		case <-s.done:
			return false
		case <-ctx.Done():
			t.Fatalf("mariadbd does not answer within %s\n%s", patience, s.log())
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

// Kill kills the server and waits for its end. It does nothing to a server that has
// ended.
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

// Database creates an empty database and returns its URL. The end of the test t drops
// it.
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

// Shared is one server for many tests of small databases, which it keeps in memory; see
// [test.MemoryDir]. The first call of Server starts it, and TestMain calls Close. Only tests that
// run one after the other may kill it. The zero value is ready to use.
type Shared struct {
	once   sync.Once
	server *Server
	owner  *owner
}

// Server returns the server; see [Start]. If an earlier test has killed it, Server
// restarts it.
func (s *Shared) Server(t testing.TB) *Server {
	t.Helper()
	program(t, "mariadbd")

	// The server outlives the test that is the first to need it, so that test must not clean up.
	s.once.Do(func() {
		s.owner = &owner{TB: t}
		s.server = Start(s.owner)
	})

	// Start has ended the earlier test, and once does not run again.
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

// owner is a test whose cleanup runs when TestMain calls Close.
type owner struct {
	testing.TB
	ends []func()
}

func (o *owner) Cleanup(f func()) { o.ends = append(o.ends, f) }

func (o *owner) TempDir() string { return test.MemoryDir(o) }

func (o *owner) end() {
	for _, f := range slices.Backward(o.ends) {
		f()
	}
}
