//go:build linux

package clockfaults

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/test"
	"github.com/redis/go-redis/v9"
)

// server is a redis-server whose clock the test moves.
type server struct {
	*redistest.Server
	t      testing.TB
	file   string
	offset time.Duration
}

var library = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "clock")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "clock.so")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", path, "testdata/clock.c", "-ldl").CombinedOutput()
	if err != nil {
		os.Stderr.Write(out)
	}
	return path, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := library(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// start starts a server whose clock is off by offset.
func start(t *testing.T, offset time.Duration, args ...string) *server {
	t.Helper()
	test.Program(t, "cc", "gcc")
	path, err := library()
	if err != nil {
		test.Missing(t, fmt.Sprintf("no library to move the clock with: %v; the Debian package libc6-dev may be missing", err))
	}
	s := &server{t: t, file: filepath.Join(t.TempDir(), "clock")}
	s.step(offset)
	t.Setenv("LD_PRELOAD", path)
	t.Setenv("HEADGATE_CLOCK", s.file)
	s.Server = redistest.Start(t, args...)
	t.Setenv("LD_PRELOAD", "")
	return s
}

// step moves the clock.
func (s *server) step(d time.Duration) {
	s.t.Helper()
	s.offset += d
	var text [8]byte
	binary.NativeEndian.PutUint64(text[:], uint64(s.offset.Microseconds()))
	file, err := os.OpenFile(s.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(text[:], 0); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) connect() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// now returns the time of the server's clock.
func now(t *testing.T, c *redis.Client) time.Time {
	t.Helper()
	at, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return at
}
