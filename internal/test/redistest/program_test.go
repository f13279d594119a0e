package redistest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test/freeport"
)

// A server is started from the program that HEADGATE_REDIS_SERVER names, and not from
// the one in PATH.
func TestServerProgramIsTheOneThatIsNamed(t *testing.T) {
	link := filepath.Join(t.TempDir(), "another-server")
	if err := os.Symlink(installed(t), link); err != nil {
		t.Fatal(err)
	}
	t.Setenv(ServerVariable, link)
	info := dial(t, Start(t).Addr).InfoMap(t.Context(), "server").Item("Server", "executable")
	if info != link {
		t.Errorf("%q is running, want %q", info, link)
	}
}

func TestServerProgramIsChecked(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it needs Unix programs")
	}
	// Echo runs and prints something, but is no server.
	echo, err := exec.LookPath("echo")
	if err != nil {
		t.Fatal(err)
	}

	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]string{
		"redis-server":     "the path is not absolute, and tests run in the folders of their packages",
		"./redis-server":   "the path is not absolute, and tests run in the folders of their packages",
		"/no/such/program": "the program does not run: ",
		text:               "the program does not run: ",
		filepath.Dir(text): "the program does not run: ",
		echo:               "the program is no Redis server: asked for its --version, it says ",
	} {
		if err := checkProgram(path); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}

	// The program of this machine passes.
	if err := checkProgram(installed(t)); err != nil {
		t.Error(err)
	}
}

// A server that does not start says why.
func TestServerThatDoesNotStartIsQuoted(t *testing.T) {
	s := &Server{t: t, path: program(t), dir: t.TempDir(), Addr: freeport.Addr(t),
		args: []string{"--no-such-option", "1"}}
	s.launch()
	if s.await() {
		t.Fatal("it has started")
	}
	if text := s.log(); !strings.Contains(text, "no-such-option") {
		t.Errorf("it says %q", text)
	}
}

// installed returns the server program of this machine.
func installed(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(ServerVariable); path != "" {
		return path
	}
	path, err := filepath.Abs(program(t))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// .ci/tried-on reads the version of the server from the log of this test.
func TestServerSaysItsVersion(t *testing.T) {
	said := version(dial(t, Start(t).Addr).Info(t.Context(), "server").Val())
	if said == "" {
		t.Fatal("the server does not say its version")
	}
	t.Logf("version: %s", said)
}

// version returns the name and the version of the server that has answered INFO. A
// Valkey also says with which version of Redis it is compatible.
func version(info string) string {
	for _, name := range []string{"Valkey", "Redis"} {
		if _, after, found := strings.Cut(info, "\n"+strings.ToLower(name)+"_version:"); found {
			number, _, _ := strings.Cut(after, "\r")
			return name + " " + number
		}
	}
	return ""
}

func TestVersion(t *testing.T) {
	for info, want := range map[string]string{
		"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n":                             "Redis 7.0.15",
		"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nos:Linux": "Valkey 8.0.1",
		"# Server\r\nos:Linux\r\n": "",
		"":                         "",
	} {
		if got := version(info); got != want {
			t.Errorf("version(%q) = %q, want %q", info, got, want)
		}
	}
}
