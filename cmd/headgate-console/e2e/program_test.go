package e2e

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/mariadbtest"
	"github.com/headgate/headgate/internal/test"
)

// patience bounds every wait without a bound of its own.
const patience = 2 * time.Minute

// programs are those that all tests of a run start.
var programs struct {
	once  sync.Once
	dir   string
	maria mariadbtest.Shared
}

// build compiles the console and the shop for the first test that needs them, and returns their
// paths.
func build(t testing.TB) (console, shop string) {
	t.Helper()
	programs.once.Do(func() {
		dir, err := os.MkdirTemp("", "console-e2e")
		if err != nil {
			t.Fatal(err)
		}

		cmd := exec.Command("go", "build", "-o", dir+string(filepath.Separator), ".",
			"github.com/headgate/headgate/examples/shop")
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		programs.dir = dir
	})

	// A build that failed has failed the test that began it; the others need not try.
	if programs.dir == "" {
		t.Fatal("the programs did not compile for an earlier test")
	}
	return filepath.Join(programs.dir, "headgate-console"), filepath.Join(programs.dir, "shop")
}

// engine is a kind of database that the console may have.
type engine struct {
	name string
	open func(*testing.T) *database // an empty one
}

// engines returns SQLite, and MariaDB for long runs.
func engines() []engine {
	return []engine{
		{"sqlite", func(t *testing.T) *database {
			dir := t.TempDir()
			file := filepath.Join(dir, "console.db")
			return &database{t: t, url: "sqlite://" + file, args: []string{"-data", dir}, wal: file + "-wal"}
		}},
		{"mariadb", func(t *testing.T) *database {
			test.Long(t, "it takes the same steps once more, on MariaDB")
			url := programs.maria.Server(t).Database(t)
			return &database{t: t, url: url, env: []string{"HEADGATE_CONSOLE_DB=" + url}}
		}},
	}
}

// program is a process of this test and its output.
type program struct {
	address string // it serves on

	t    testing.TB
	name string
	out  *os.File // the end that the program writes to

	process *os.Process
	ended   chan struct{} // closed when the process has ended
	err     error         // with which it ended
	killed  bool          // by stop

	mu    sync.Mutex
	lines []line
	more  chan struct{} // closed at the next line
}

// line is a line of the output of a program.
type line struct {
	text string
	at   time.Time
}

var serving = regexp.MustCompile(`serving .*address=(\S+)`)

// start runs a program that prints the address on which it serves, and waits for the
// address. The program ends with the test.
func start(t testing.TB, name, path string, env []string, args ...string) *program {
	t.Helper()
	p := run(t, name, path, env, args...)
	p.address = p.await(0, serving)[1]
	return p
}

// run runs a program. It ends with the test.
func run(t testing.TB, name, path string, env []string, args ...string) *program {
	t.Helper()

	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, name: name, out: out, more: make(chan struct{})}

	// The output is read to its end before the test ends, so that a failure shows all of it.
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(in)
	}()
	p.launch(path, env, args)

	t.Cleanup(func() {
		p.stop(syscall.SIGTERM)
		<-read
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, p.printed())
		}
	})
	return p
}

// launch runs the process. The goroutine that starts it
// keeps its thread until the process has ended, as the kernel's parent death signal
// is tied to it.
func (p *program) launch(path string, env, args []string) {
	p.t.Helper()

	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = p.out, p.out, dieWithParent()

	started := make(chan error)
	p.ended = make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.ended)
		}
	}()

	err := <-started

	// The process has its own copy of this end; with ours open, reading would never end.
	p.out.Close()
	if err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}

	p.process = cmd.Process
}

// stop ends the process by a signal, and waits for its end. It fails the test if the process
// ends with an error, unless it was killed.
func (p *program) stop(s os.Signal) {
	p.killed = p.killed || s == syscall.SIGKILL
	p.process.Signal(s)

	deadline := time.NewTimer(patience)
	defer deadline.Stop()

	// A process that hangs is killed, or it would outlive the test.
	select {
	case <-p.ended:
		if p.err != nil && !p.killed {
			p.t.Errorf("%s ended with %v", p.name, p.err)
		}
	case <-deadline.C:
		p.process.Kill()
		<-p.ended
		p.t.Errorf("%s did not end within %s", p.name, patience)
	}
}

func (p *program) read(in io.ReadCloser) {
	defer in.Close()
	for s := bufio.NewScanner(in); s.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, line{s.Text(), time.Now()})
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
	}
}

// from returns the lines after the first n, and a channel that is closed when there
// are more.
func (p *program) from(n int) (lines []line, more <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[n:], p.more
}

func (p *program) count() int {
	lines, _ := p.from(0)
	return len(lines)
}

func (p *program) printed() string {
	lines, _ := p.from(0)
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}

// await waits for a matching line after the first n, and returns its parts.
func (p *program) await(n int, want *regexp.Regexp) []string {
	p.t.Helper()
	parts, _ := p.awaitAt(n, want)
	return parts
}

// awaitAt is await, and also returns when the line came.
func (p *program) awaitAt(n int, want *regexp.Regexp) ([]string, time.Time) {
	p.t.Helper()

	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		// The lines that are there come first: the one that is wanted may have come before the
		// call.
		lines, more := p.from(n)
		for _, l := range lines {
			if parts := want.FindStringSubmatch(l.text); parts != nil {
				return parts, l.at
			}
		}

		select {
		case <-more:
		case <-deadline.C:
			p.t.Fatalf("%s printed no line like %s within %s", p.name, want, patience)
		}
	}
}
