package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/examples/internal/try"
	"github.com/headgate/headgate/internal/test"
)

func expect(t *testing.T, s *try.Service, customer string, want string) {
	t.Helper()
	a := s.Ask(try.Request{Header: map[string]string{"Authorization": "Bearer " + customer + "-token"}})
	if got := a.Show("X-RateLimit-Limit", "X-RateLimit-Remaining"); got != want {
		t.Errorf("%s: %d, limit and left: %s, want %s", customer, a.Status, got, want)
	}
}

// write replaces the file.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// hangUp sends this process, which runs the program, a SIGHUP.
func hangUp(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		test.Skip(t, "Windows has no SIGHUP")
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

func TestEveryCustomerHasAnOwnLimitOrTheDefault(t *testing.T) {
	s := try.Start(t, &program{}, "-limits", "limits.json")
	expect(t, s, "alice", "100 99")
	expect(t, s, "bob", "2 1")
	expect(t, s, "bob", "2 0")
	expect(t, s, "bob", "2 0")
	expect(t, s, "carol", "5 4")
	expect(t, s, "alice", "100 98")
	if a := s.Get("/"); a.Status != 401 {
		t.Errorf("a stranger: %d", a.Status)
	}
	s.Pass(time.Minute)
	expect(t, s, "bob", "2 1")
}

func TestOnHangUpNewLimitsAreInForceAndWhatWasUsedStaysUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.json")
	write(t, file, `{"default": "3/1m fixed-window", "customers": {"alice": "2/1m fixed-window"}}`)
	s := try.Start(t, &program{}, "-limits", file)
	expect(t, s, "alice", "2 1")
	expect(t, s, "alice", "2 0")
	expect(t, s, "bob", "3 2")

	write(t, file, `{"default": "9/1m fixed-window", "customers": {"alice": "5/1m fixed-window", "bob": "4/1m fixed-window"}}`)
	expect(t, s, "bob", "3 1") // not before
	hangUp(t)
	if line := s.Line(); line != "reloaded" {
		t.Fatal(line)
	}
	expect(t, s, "alice", "5 2")
	expect(t, s, "bob", "4 1")
	expect(t, s, "carol", "9 8")
}

func TestABadFileIsRefusedAndTheLastGoodOneStays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.json")
	good := `{"default": "5/1m fixed-window"}`
	write(t, file, good)
	s := try.Start(t, &program{}, "-limits", file)
	expect(t, s, "carol", "5 4")
	rows := []struct{ text, fault string }{
		{`{"default": "9/1m`, "unexpected EOF"},
		{`{"default": "0/1m"}`, `limit "0/1m": quota 0 is not positive`},
		{`{"others": "9/1m"}`, `unknown field "others"`},
		{`{}`, "default: quota 0 is not positive; period 0s is below 1ms"},
		{`{"default": "9/1m", "customers": {"carol": null}}`, `customer "carol": quota 0 is not positive; period 0s is below 1ms`},
		{good + good, "there is more after the limits"},
	}
	for _, row := range rows {
		write(t, file, row.text)
		hangUp(t)
		line := s.Line()
		if !strings.HasPrefix(line, "example: not reloaded: "+file+": ") || !strings.HasSuffix(line, row.fault) {
			t.Errorf("%s: said %q, want %q in the end", row.text, line, row.fault)
		}
	}
	expect(t, s, "carol", "5 3")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	hangUp(t)
	if line := s.Line(); !strings.Contains(line, "no such file") {
		t.Error(line)
	}
	expect(t, s, "carol", "5 2")
	write(t, file, strings.Replace(good, "5", "9", 1))
	hangUp(t)
	if line := s.Line(); line != "reloaded" {
		t.Error(line)
	}
	expect(t, s, "carol", "9 5")
}

func TestWithABadFileTheProgramDoesNotStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.json")
	write(t, file, `{"default": "x"}`)
	status, wrote := try.Attempt(&program{}, "-limits", file)
	if status != 2 || strings.Count(wrote, "\n") != 1 || !strings.HasPrefix(wrote, "example: "+file+": ") {
		t.Errorf("%d %q", status, wrote)
	}
}
