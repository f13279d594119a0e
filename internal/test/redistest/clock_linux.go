package redistest

import (
	_ "embed" // the library that moves clocks
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
)

// Clock is a redis-server of this test, whose wall clock the test moves.
type Clock struct {
	*Server
	t      testing.TB
	file   string
	offset time.Duration
}

//go:embed testdata/clock.c
var clockSource []byte

// StartClock starts a server whose clock is off by offset, as [Start] does. It needs Linux
// and a C compiler, without which the test is left out. A test that calls it cannot be
// parallel.
func StartClock(t *testing.T, offset time.Duration, args ...string) *Clock {
	t.Helper()
	c := &Clock{t: t, file: filepath.Join(t.TempDir(), "clock")}
	c.Step(offset)
	t.Setenv("LD_PRELOAD", clockLibrary(t))
	t.Setenv("HEADGATE_CLOCK", c.file)
	c.Server = Start(t, args...)
	t.Setenv("LD_PRELOAD", "")
	return c
}

// clockLibrary compiles the library and returns its path.
func clockLibrary(t testing.TB) string {
	t.Helper()
	test.Program(t, "cc", "gcc")
	dir := t.TempDir()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatal(err)
	}

	// A compiler without the headers of C is as good as none.
	compile := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl")
	if out, err := compile.CombinedOutput(); err != nil {
		test.Missing(t, fmt.Sprintf("no library to move the clock with: %v; "+
			"the Debian package libc6-dev may be missing\n%s", err, out))
	}
	return library
}

// Step moves the clock.
func (c *Clock) Step(d time.Duration) {
	c.t.Helper()
	c.offset += d
	c.write(0, c.offset.Microseconds())
}

// StandAt makes the clock stand at an instant after 1970, until the next call of StandAt.
// Timeouts of the server, other than those of keys, go by another clock.
func (c *Clock) StandAt(at time.Time) {
	c.t.Helper()
	c.write(8, at.UnixMicro())
}

// write puts one of the two numbers into the file that the server has in its memory.
func (c *Clock) write(offset, micros int64) {
	c.t.Helper()
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()

	// The server maps both numbers, also before they are written.
	if err := file.Truncate(16); err != nil {
		c.t.Fatal(err)
	}
	var text [8]byte
	binary.NativeEndian.PutUint64(text[:], uint64(micros))
	if _, err := file.WriteAt(text[:], offset); err != nil {
		c.t.Fatal(err)
	}
}
