package redistest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/test"
)

// ServerVariable names the variable of the environment that chooses the program
// that tests start as their Redis server.
const ServerVariable = "HEADGATE_REDIS_SERVER"

// program returns the path of the server program.
func program(t testing.TB) string {
	t.Helper()
	path := os.Getenv(ServerVariable)
	if path == "" {
		return test.Program(t, "redis-server", "redis-server")
	}
	if err := checkProgram(path); err != nil {
		t.Fatalf("%s=%s: %v", ServerVariable, path, err)
	}
	return path
}

// checked holds the paths that checkProgram has accepted.
var checked sync.Map

// checkProgram reports why the program at path is no server of the Redis family.
// Each of these programs says "<name> server v=<version>" when asked for its version.
func checkProgram(path string) error {
	if _, ok := checked.Load(path); ok {
		return nil
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("the path is not absolute, and tests run in the folders of their packages")
	}

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return fmt.Errorf("the program does not run: %w", err)
	}

	line, _, _ := strings.Cut(string(out), "\n")
	if !strings.Contains(line, " server v=") {
		return fmt.Errorf("the program is no Redis server: asked for its --version, it says %q", line)
	}
	checked.Store(path, true)
	return nil
}
