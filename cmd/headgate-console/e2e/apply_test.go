package e2e

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/app"
	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// The files of these tests have this many policies, of which a transaction takes long enough
// to be killed in its middle.
const (
	files      = 10
	perFile    = 100
	everything = files * perFile

	either = -1 // everything or nothing
)

// repository writes the files.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()

	for i := range files {
		var b strings.Builder
		b.WriteString("policies:\n")
		for j := range perFile {
			fmt.Fprintf(&b, "- name: p%d-%d\n  description: %q\n  apps: [shop]\n  limit: %d/1m\n  key: ip\n", i, j,
				strings.Repeat("long ", 150), j+1)
		}

		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// database is a console's database with the application shop.
type database struct {
	t         *testing.T
	url       string
	env, args []string // of the console
	wal       string   // the file that grows during a transaction, or ""
	token     string   // of the administrator
}

// with opens the database while no console serves it.
func (d *database) with(f func(ctx context.Context, s *service.Service, first string)) {
	d.t.Helper()
	ctx := d.t.Context()
	a, err := app.Open(ctx, config.Config{DB: d.url}, slog.New(slog.DiscardHandler))
	if err != nil {
		d.t.Fatal(err)
	}
	f(ctx, a.Service, a.OneTimePassword)
	if err := a.Close(); err != nil {
		d.t.Error(err)
	}
}

// prepare adds the application and makes the token.
func (d *database) prepare() *database {
	d.t.Helper()

	d.with(func(ctx context.Context, s *service.Service, first string) {
		must := func(err error) {
			if err != nil {
				d.t.Fatal(err)
			}
		}

		// The session of the one-time password may do nothing but choose a password, so there are
		// two.
		session, err := s.Login(ctx, service.FirstUser, first, service.Meta{})
		must(err)
		actor, err := s.Authenticate(ctx, session.Token, service.Meta{})
		must(err)
		session, err = s.ChangePassword(ctx, actor, first, password)
		must(err)
		actor, err = s.Authenticate(ctx, session.Token, service.Meta{})
		must(err)

		must(s.CreateApp(ctx, actor, "shop", ""))
		_, d.token, err = s.CreateToken(ctx, actor, service.TokenDraft{Label: "ci",
			Scope: service.Write, Life: time.Hour})
		must(err)
	})
	return d
}

// policies returns the number of policies. Each has to be in its first version.
func (d *database) policies() (n int) {
	d.t.Helper()
	d.with(func(ctx context.Context, s *service.Service, _ string) {
		set, _, err := s.Outbox().Snapshot(ctx)
		if err != nil {
			d.t.Fatal(err)
		}

		n = len(set)
		for _, p := range set {
			if p.Version != 1 {
				d.t.Fatalf("%s has version %d: it was written more than once", p.Name, p.Version)
			}
		}
	})
	return n
}

// serve starts a console on a free port, with further arguments.
func (d *database) serve(console string, args ...string) *program {
	d.t.Helper()
	return start(d.t, "console", console, d.env, slices.Concat(d.args, args, []string{"-listen", "127.0.0.1:0"})...)
}

// command is a running apply.
type command struct {
	*exec.Cmd
	out bytes.Buffer
}

func (d *database) apply(console, dir, addr string) *command {
	d.t.Helper()
	c := &command{Cmd: exec.Command(console, "apply", "-f", dir, "-url", "http://"+addr)}
	c.Env = append(os.Environ(), "HEADGATE_CONSOLE_TOKEN="+d.token)
	c.Stdout, c.Stderr, c.SysProcAttr = &c.out, &c.out, dieWithParent()
	if err := c.Start(); err != nil {
		d.t.Fatal(err)
	}
	return c
}

// finish waits for the end, and returns the exit code, which is -1 if it was killed.
func (c *command) finish() int {
	c.Wait()
	return c.ProcessState.ExitCode()
}

// relay passes connections on to a console. After a number of bytes of the clients it passes
// nothing on any more and calls strike, once.
type relay struct {
	addr     string
	to       string
	after    int64
	onAnswer bool // it strikes when the console answers to these bytes, and passes no answer
	strike   func()

	mu     sync.Mutex
	passed int64
}

func newRelay(t *testing.T, to string, after int64, strike func()) *relay {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	r := &relay{addr: l.Addr().String(), to: to, after: after, strike: strike}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.connect(c) })
		}
	})

	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return r
}

// connect passes a connection on in both directions until one side ends it.
func (r *relay) connect(client net.Conn) {
	defer client.Close()

	console, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer console.Close()

	// Either direction may end first; the other one is ended by its connection.
	var answers sync.WaitGroup
	answers.Go(func() {
		pass(client, console, r.countAnswer)
		client.Close()
	})

	pass(console, client, r.count)
	console.Close()
	answers.Wait()
}

// count returns how many of the next n bytes may pass, and what to do after them.
func (r *relay) count(n int) (int, func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.after < 0 || r.onAnswer || r.passed+int64(n) < r.after {
		r.passed += int64(n)
		return n, nil
	}
	n = int(max(0, r.after-r.passed))
	r.passed = r.after
	strike := r.strike
	r.strike = func() {}
	return n, strike
}

// countAnswer is count for bytes of the console.
func (r *relay) countAnswer(n int) (int, func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.onAnswer && r.passed >= r.after {
		return 0, r.strike
	}
	return n, nil
}

func pass(to, from net.Conn, count func(int) (int, func())) {
	b := make([]byte, 4096)
	for {
		// Bytes that came together with an error still have to be passed on.
		n, err := from.Read(b)
		var strike func()
		if n > 0 {
			n, strike = count(n)
		}

		if _, bad := to.Write(b[:n]); bad != nil || err != nil {
			return
		}

		if strike != nil {
			strike()
			return
		}
	}
}

// awaitGrowth waits until a file has grown by more than so many bytes.
func awaitGrowth(t *testing.T, path string, by int64) {
	size := func() int64 {
		if info, err := os.Stat(path); err == nil {
			return info.Size()
		}
		return 0
	}
	for from, deadline := size(), time.Now().Add(patience); size() < from+by; {
		if time.Now().After(deadline) {
			t.Errorf("%s does not grow by %d bytes", path, by)
			return
		}
	}
}

// TestApplyKilled kills an apply, and consoles during one. The console has all policies or
// none of them afterwards, and the next apply writes those that are missing.
func TestApplyKilled(t *testing.T) {
	t.Parallel() // the tests wait for other programs most of the time
	console, _ := build(t)
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) { killApply(t, console, e.open) })
	}
}

// kill is a kill in the course of an apply.
type kill struct {
	name   string
	after  int64 // bytes of the client
	client bool  // is killed, and else the console
	growth int64 // of the log of the transaction before the kill
	want   int   // the policies afterwards, or either for none or all
}

func killApply(t *testing.T, console string, open func(*testing.T) *database) {
	dir := repository(t)

	// The first run is not disturbed, and shows how many bytes it takes.
	d := open(t).prepare()
	p := d.serve(console)
	r := newRelay(t, p.address, -1, nil)
	if c := d.apply(console, dir, r.addr); c.finish() != 0 ||
		strings.Count(c.out.String(), "\ncreated    p") != everything {
		t.Fatalf("%s", c.out.String())
	}

	total := r.passed
	if c := d.apply(console, dir, r.addr); c.finish() != 0 ||
		!strings.HasSuffix(c.out.String(), "Nothing to change.\n") {
		t.Fatalf("%s", c.out.String())
	}

	p.stop(syscall.SIGTERM)
	if n := d.policies(); n != everything {
		t.Fatalf("%d policies", n)
	}

	// The total is cut at points that differ in what the console has: nothing to apply, a part of
	// the body, the whole body, an open transaction, a commit.
	for _, k := range []kill{
		{"client, with half of the plan sent", total / 4, true, 0, 0},
		{"client, with half of the import sent", total * 3 / 4, true, 0, 0},
		{"client, before the last byte", total - 1, true, 0, 0},
		{"client, after the last byte", total, true, 0, either},
		{"client, in the transaction", total, true, 1 << 20, either},
		{"console, with half of the import received", total * 3 / 4, false, 0, 0},
		{"console, before the last byte", total - 1, false, 0, 0},
		{"console, after the last byte", total, false, 0, either},
		{"console, early in the transaction", total, false, 1 << 12, either},
		{"console, in the transaction", total, false, 1 << 20, either},
		{"console, before its answer arrives", total, false, 0, everything},
	} {
		if k.growth > 0 && d.wal == "" {
			continue // the log of this database is not to be seen
		}
		t.Run(k.name, func(t *testing.T) { k.strike(open(t).prepare(), console, dir) })
	}
}

// strike kills, and then applies once more.
func (k *kill) strike(d *database, console, dir string) {
	t := d.t
	p := d.serve(console)
	n := k.interrupt(d, p, console, dir)

	// With either, a part of the policies would be the fault that this catches.
	if n != k.want && (k.want != either || n != 0 && n != everything) {
		t.Errorf("the console has %d policies", n)
	}
	t.Logf("the console had %d policies", n)

	// The console that starts after the kill has no trace of it: the next apply writes what is
	// missing.
	p = d.serve(console)
	if c := d.apply(console, dir, p.address); c.finish() != 0 ||
		strings.Count(c.out.String(), "\ncreated    p") != everything-n {
		t.Errorf("afterwards:\n%.2000s", c.out.String())
	}

	p.stop(syscall.SIGTERM)
	if n := d.policies(); n != everything {
		t.Errorf("afterwards the console has %d policies", n)
	}
}

// interrupt applies through a relay that kills, and returns how many policies there are when
// the console has ended.
func (k *kill) interrupt(d *database, p *program, console, dir string) int {
	t := d.t
	var c *command
	started := make(chan struct{})

	// The strike may come before Start has returned, and the process is not known until then.
	r := newRelay(t, p.address, k.after, func() {
		<-started
		if k.growth > 0 {
			awaitGrowth(t, d.wal, k.growth)
		}
		if k.client {
			c.Process.Kill()
			return
		}
		p.stop(syscall.SIGKILL)
	})

	// With everything wanted, the console has committed, and only its answer is lost.
	r.onAnswer = k.want == everything
	c = d.apply(console, dir, r.addr)
	close(started)

	code := c.finish()

	// Only the client that lives on can say what it does not know.
	switch {
	case k.client && code != -1:
		t.Errorf("the client was not killed, and ended with %d", code)
	case !k.client && (code != 2 || !strings.Contains(c.out.String(), "either all policies or none")):
		t.Errorf("the client ended with %d:\n%.2000s", code, c.out.String())
	}

	if k.client {
		p.stop(syscall.SIGTERM)
	}
	return d.policies()
}
