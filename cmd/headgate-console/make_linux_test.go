package main

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/test"
)

// In a clone the command of the first page says at once what takes so long.
func TestMakeConsoleSaysThatItCompiles(t *testing.T) {
	cmd := exec.Command(test.Program(t, "make", "make"), "--no-print-directory", "-C", "../..", "console",
		"ARGS=-listen 127.0.0.1:0 -data "+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	// Make, the go command and the console are one group, as in a terminal, where Ctrl-C ends all.
	defer cmd.Wait()
	defer syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "Compiling the console: ") {
		t.Errorf("the first line is %q", lines.Text())
	}

	wrote := false
	for lines.Scan() {
		wrote = wrote || password.MatchString(lines.Text())
		if m := address.FindStringSubmatch(lines.Text()); m != nil {
			healthy(t, m[1])
			if !wrote {
				t.Error("it prints no password before its address")
			}
			return
		}
	}
	t.Error("it ends without serving")
}
