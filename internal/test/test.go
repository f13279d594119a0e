// Package test has helpers for the tests of several packages: to leave a test
// out and report it, to find the programs that a test starts, to find goroutines
// that tests leave behind, to keep databases in memory, to measure time without
// failing because of it, and to measure the heap in a process of its own.
package test

// Four variables of the environment control this package:
//
//	HEADGATE_LONG=1     also runs the suites that Long guards
//	HEADGATE_REQUIRE=1  fails instead of leaving out what Program misses
//	HEADGATE_MEASURE=F  appends a line to the file F for each figure of AtMost
//	HEADGATE_SKIPPED=F  appends a line to the file F for each test that was left out

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may live on after the tests.
var patience = 30 * time.Second

// Exit ends a test binary with the code of m.Run, or with 1 if the tests passed and
// left a goroutine behind. The half second that goleak waits is too short for a closed
// Redis client, which may dial five times before its last goroutine ends.
func Exit(code int, options ...goleak.Option) {
	if code == 0 {
		if err := wait(func() error { return goleak.Find(options...) }, patience); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// SentinelLeak ignores the goroutines that a client of Sentinel leaves if it is closed while
// it connects: go-redis then listens to the sentinel for ever.
func SentinelLeak() (options []goleak.Option) {
	for _, name := range []string{
		"(*sentinelFailover).listen", "(*channel).initMsgChan.func1", "(*channel).initHealthCheck.func1",
	} {
		options = append(options, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9."+name))
	}
	return options
}

// wait calls find until it returns nil, and after the patience returns its last error.
// A call of find takes a while.
func wait(find func() error, patience time.Duration) (err error) {
	for begun := time.Now(); time.Since(begun) < patience; {
		if err = find(); err == nil {
			return nil
		}
	}
	return err
}

// Patiently calls f again, for up to a minute, while its error is that it was late: a function that
// gives itself a second may take longer on a busy machine. It returns what f returned last.
func Patiently[T any](f func() (T, error)) (v T, err error) {
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		v, err = f()
		if late := net.Error(nil); !errors.As(err, &late) || !late.Timeout() {
			break
		}
	}
	return v, err
}

// Skip leaves the test out for the reason, and reports it on the standard error
// of the program that started the test binary. go test prints nothing that a
// passing package writes, except with -v.
func Skip(t testing.TB, reason string) {
	t.Helper()
	line := fmt.Sprintf("SKIPPED %s: %s\n", t.Name(), reason)
	if path := os.Getenv("HEADGATE_SKIPPED"); path != "" {
		appendTo(t, path, line)
	} else if w, err := openParentStderr(); err == nil {
		w.WriteString(line) // best effort: the skip itself is on record with -v
		w.Close()
	}
	t.Skip(reason)
}

// Long leaves the test out unless HEADGATE_LONG is 1. what describes the part
// of the test that takes so long.
func Long(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("HEADGATE_LONG") != "1" {
		Skip(t, what+"; HEADGATE_LONG=1 runs it")
	}
}

// Program returns the path of a program. If it is not installed the test is
// left out, or fails where HEADGATE_REQUIRE is 1. In both cases the message
// names the Debian package of the program.
func Program(t testing.TB, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, name+" is not in PATH; the Debian package "+debian+" brings it")
	}
	return path
}

// Missing leaves the test out because the machine lacks something, or fails it
// where HEADGATE_REQUIRE is 1.
func Missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("HEADGATE_REQUIRE") == "1" {
		t.Fatal(reason)
	}
	Skip(t, reason)
}

// AtMost records got, a measured time, and bound, its intended maximum. It
// never fails the test, because a busy machine delays everything: .ci/measure
// prints all figures beside their bounds. Use it only for facts that cannot be
// counted or decided in fake time.
func AtMost(t testing.TB, what string, got, bound time.Duration) {
	t.Helper()
	verdict := "ok"
	if got > bound {
		verdict = "OVER"
	}

	// With -v the figure is also on record where no file keeps it.
	line := fmt.Sprintf("%-4s  %10s  at most %10s  %s: %s\n", verdict, rounded(got), rounded(bound), t.Name(), what)
	t.Logf("measured: %s", line)
	if Measures() {
		appendTo(t, os.Getenv("HEADGATE_MEASURE"), line)
	}
}

// Measures reports whether the figures of [AtMost] are kept, so that a test may leave
// out what only they need.
func Measures() bool { return os.Getenv("HEADGATE_MEASURE") != "" }

// rounded returns d with about three digits.
func rounded(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// appendTo adds a line to a file, in one write, so that several processes may add
// to the same file.
func appendTo(t testing.TB, path, line string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(line); err != nil {
		t.Fatal(err)
	}
}
