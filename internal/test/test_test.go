package test_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/test"
)

func TestMain(m *testing.M) {
	if os.Getenv("HEADGATE_CHILD") == "stays" {
		*test.Patience = time.Millisecond
		go func() { select {} }()
	}
	test.Exit(m.Run())
}

func TestExit(t *testing.T) {
	if stderr, failed := run(t, "none"); failed {
		t.Errorf("tests that leave nothing behind fail: %s", stderr)
	}
	if stderr, failed := run(t, "stays"); !failed || !strings.Contains(stderr, "test_test.TestMain") {
		t.Errorf("tests that leave a goroutine behind: failed %v, standard error %q", failed, stderr)
	}
}

func TestWait(t *testing.T) {
	for _, row := range []struct {
		ends, took time.Duration
		found      bool
	}{
		{0, time.Second, false},
		{29 * time.Second, 30 * time.Second, false},
		{30 * time.Second, 30 * time.Second, true},
	} {
		// Each look takes a second: the last one begins a second before the end.
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			err := test.Wait(func() error {
				defer time.Sleep(time.Second)
				if time.Since(begun) < row.ends {
					return errors.New("a goroutine is left")
				}
				return nil
			}, 30*time.Second)

			if took := time.Since(begun); took != row.took || err != nil != row.found {
				t.Errorf("a goroutine that ends after %v: %v after %v", row.ends, err, took)
			}
		})
	}
}

// What was late is asked for again, and another error is not.
func TestPatiently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, broken := 0, errors.New("it is broken")
		ask := func(late int, last error) (int, error) {
			asked = 0
			return test.Patiently(func() (int, error) {
				if asked++; asked <= late {
					time.Sleep(time.Second)
					return 0, fmt.Errorf("stats: %w", context.DeadlineExceeded)
				}
				return 7, last
			})
		}

		// A late call takes a second, so that there are sixty in a minute.
		if n, err := ask(59, nil); n != 7 || err != nil || asked != 60 {
			t.Errorf("after 59 times: %d, %v, asked %d times", n, err, asked)
		}
		if _, err := ask(1, broken); err != broken || asked != 2 {
			t.Errorf("%v, asked %d times", err, asked)
		}
		if _, err := ask(100, nil); !errors.Is(err, context.DeadlineExceeded) || asked != 60 {
			t.Errorf("always late: %v, asked %d times", err, asked)
		}
	})
}

func TestMemoryDir(t *testing.T) {
	var dirs [2]string
	t.Run("", func(t *testing.T) {
		for i := range dirs {
			dirs[i] = test.MemoryDir(t)
			if err := os.WriteFile(filepath.Join(dirs[i], "file"), []byte("x"), 0o600); err != nil {
				t.Error(err)
			}
		}
	})

	if dirs[0] == dirs[1] {
		t.Errorf("both directories are %s", dirs[0])
	}

	// The end of a test removes its directory with the files in it.
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after the test: %v", dir, err)
		}
	}
}

// TestChild runs in a process of its own, which other tests start.
func TestChild(t *testing.T) {
	switch os.Getenv("HEADGATE_CHILD") {
	case "":
		return
	case "long":
		test.Long(t, "it counts to a million")
	case "program":
		test.Program(t, "no-such-program", "no-such-package")
	case "alone":
		if test.Alone(t) {
			t.Error("it fails there")
		}
	}
}

// run starts TestChild below a shell, which stands for the go command, and returns
// what the shell's standard error got and the exit status.
func run(t *testing.T, child string, env ...string) (stderr string, failed bool) {
	t.Helper()
	if runtime.GOOS == "windows" {
		test.Skip(t, "it needs a Unix shell")
	}

	path := filepath.Join(t.TempDir(), "stderr")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	cmd := exec.Command("/bin/sh", "-c", `"$0" -test.run '^TestChild$'; exit $?`, os.Args[0])
	cmd.Env = append(os.Environ(), "HEADGATE_CHILD="+child, "HEADGATE_LONG=", "HEADGATE_REQUIRE=", "HEADGATE_SKIPPED=")
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = file
	failed = cmd.Run() != nil

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), failed
}

func TestSkip(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("the standard error of another process can be opened on Linux alone")
	}

	const (
		long    = "SKIPPED TestChild: it counts to a million; HEADGATE_LONG=1 runs it\n"
		program = "SKIPPED TestChild: no-such-program is not in PATH; the Debian package no-such-package brings it\n"
	)

	list := filepath.Join(t.TempDir(), "list")
	for _, row := range []struct {
		name, child, env string
		stderr           string
		failed           bool
	}{
		{"a long suite is left out and listed", "long", "", long, false},
		{"a long suite runs when it is asked for", "long", "HEADGATE_LONG=1", "", false},
		{"a missing program is named with its package", "program", "", program, false},
		{"a missing program fails where all is required", "program", "HEADGATE_REQUIRE=1", "", true},
		{"a file takes the list", "program", "HEADGATE_SKIPPED=" + list, "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			stderr, failed := run(t, row.child, row.env)
			if stderr != row.stderr || failed != row.failed {
				t.Errorf("standard error %q, want %q; failed %v, want %v", stderr, row.stderr, failed, row.failed)
			}
		})
	}

	// Only the row with the file is listed there: the others went to the standard error.
	if text, err := os.ReadFile(list); err != nil || string(text) != program {
		t.Errorf("the file has %q, want %q: %v", text, program, err)
	}
}

func TestAlone(t *testing.T) {
	// The process of the test alone has this variable from the one that started it.
	const parent = "HEADGATE_PARENT"
	me := strconv.Itoa(os.Getpid())
	if os.Getenv(parent) == "" {
		t.Setenv(parent, me)
	}
	if test.Alone(t) && os.Getenv(parent) == me {
		t.Error("it is in the process of the other tests")
	}

	if _, failed := run(t, "alone"); !failed {
		t.Error("a failure in a process of its own is lost")
	}
}

func TestAtMost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures")
	t.Setenv("HEADGATE_MEASURE", path)

	test.AtMost(t, "an answer", 1234567*time.Nanosecond, 2*time.Millisecond)
	test.AtMost(t, "a late answer", 2001*time.Microsecond, 2*time.Millisecond)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	// A figure above its bound is written down, and does not fail the test.
	lines := strings.Split(string(text), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "ok ") || !strings.Contains(lines[0], "1.23ms  at most") ||
		!strings.HasPrefix(lines[1], "OVER") || !strings.HasSuffix(lines[1], "TestAtMost: a late answer") {
		t.Errorf("the file has %q", text)
	}
}
