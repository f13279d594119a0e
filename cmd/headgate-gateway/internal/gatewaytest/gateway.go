package gatewaytest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
)

// program is the import path of the gateway.
const program = "github.com/headgate/headgate/cmd/headgate-gateway"

// built is the program, built once in a run of a test binary.
var built = sync.OnceValues(func() (path string, err error) {
	dir, err := os.MkdirTemp("", "headgate-gateway")
	if err != nil {
		return "", err
	}
	binDir = dir

	path = filepath.Join(dir, "headgate-gateway")
	out, err := exec.Command("go", "build", "-o", path, program).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, depend()
})

// depend makes the result of the tests depend on the files of this module: go test keeps
// results while the files that a test has looked at are as they were, and does not see
// what the compiler reads.
func depend() error {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", program).Output()
	if err != nil {
		return err
	}
	return filepath.WalkDir(strings.TrimSpace(string(dir)), func(path string, _ os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) != ".md" {
			_, err = os.Stat(path)
		}
		return err
	})
}

// binDir is the folder of the program, or "" if it was not built.
var binDir string

// Main runs the tests of a package that uses Gateway, and ends the test binary.
func Main(m *testing.M) {
	code := m.Run()
	if binDir != "" {
		if err := os.RemoveAll(binDir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	test.Exit(code)
}

// Program returns the path of the gateway's program.
func Program(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Gateway is a gateway of this test.
type Gateway struct {
	*Process
	Addr  string // of forward-auth and JSON
	SPOE  string // of HAProxy's SPOE
	Admin string // of /healthz and /readyz
}

// Start starts a gateway with the arguments on free loopback ports, and waits until its
// policies are in force.
func Start(t testing.TB, args ...string) *Gateway {
	t.Helper()
	path := Program(t)
	g := &Gateway{Addr: freeport.Addr(t), SPOE: freeport.Addr(t), Admin: freeport.Addr(t)}
	args = append([]string{"-listen", g.Addr, "-spoe-listen", g.SPOE, "-admin-listen", g.Admin}, args...)
	g.Process = Run(t, Answers("http://"+g.Admin+"/readyz", 200), path, args...)
	return g
}

// findProgram returns the path of a program, also in the folder that Debian leaves out of the PATH
// of users. Without it the test is left out, as by test.Program.
func findProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		if _, err := os.Stat("/usr/sbin/" + name); err == nil {
			return "/usr/sbin/" + name
		}
	}
	if path == "" {
		return test.Program(t, name, name)
	}
	return path
}

// Nginx starts nginx with the configuration, and waits until it accepts connections at
// the address. Without nginx the test is left out, as by test.Program.
func Nginx(t testing.TB, config, addr string) *Process {
	t.Helper()
	path := findProgram(t, "nginx")
	dir := t.TempDir()
	return Run(t, Accepts(addr), path, "-p", dir, "-c", config, "-e", "stderr",
		"-g", "daemon off; master_process off; pid "+filepath.Join(dir, "pid")+";")
}

// Caddy starts Caddy with the Caddyfile, and waits until it accepts connections at the
// address. Without caddy the test is left out, as by test.Program.
func Caddy(t testing.TB, config, addr string) *Process {
	t.Helper()
	path := test.Program(t, "caddy", "caddy")
	dir := t.TempDir() // Caddy writes to its home
	return Run(t, Accepts(addr), "/usr/bin/env", "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir,
		path, "run", "--adapter", "caddyfile", "--config", config)
}

// HAProxy starts HAProxy with the configuration, and waits until it accepts connections at
// the address. Without haproxy the test is left out, as by test.Program.
func HAProxy(t testing.TB, config, addr string) *Process {
	t.Helper()
	return Run(t, Accepts(addr), findProgram(t, "haproxy"), "-db", "-f", config)
}
