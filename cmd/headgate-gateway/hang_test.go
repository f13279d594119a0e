//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// hold puts a pipe in place of a file, and returns once the process reads it, which does not end
// before the test.
func (p *process) hold(t *testing.T, path string, before func()) {
	t.Helper()
	if err := syscall.Mkfifo(path+".pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".pipe", path); err != nil {
		t.Fatal(err)
	}
	before()

	// A writer that does not wait can open the pipe only while a reader has it.
	p.until(t, "the pipe is read", func() bool {
		w, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			t.Cleanup(func() { w.Close() })
		}
		return err == nil
	})
}

// A file that cannot be read to its end keeps the gateway from reading its configuration, and from
// nothing else.
func TestGatewayEndsWhileAFileHangs(t *testing.T) {
	upstream := "upstream: " + says(t, "a") + "\n"
	for name, c := range map[string]struct {
		text   string
		hangup bool
	}{
		"at a look":   {upstream + "watch: 100ms\n", false},
		"at a hangup": {upstream, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := configured(t, c.text)
			r.hold(t, r.config, func() {
				if c.hangup {
					r.cmd.Process.Signal(syscall.SIGHUP)
				}
			})

			if status := get(t, r.url); status != 200 {
				t.Errorf("answered with %d", status)
			}
			r.cmd.Process.Signal(os.Interrupt)
			if code := r.end(t); code != 0 {
				t.Errorf("it ended with %d:\n%s", code, r.output())
			}
		})
	}

	// Nor is it kept from its end before it has begun.
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var p *process
	held := &process{}
	held.hold(t, path, func() { p = begin(t, "gateway", "-config", path) })
	p.cmd.Process.Signal(os.Interrupt)
	if code := p.end(t); code != 1 || !strings.Contains(p.output(), "before the configuration was read") {
		t.Errorf("it ended with %d:\n%s", code, p.output())
	}
}

// A read that takes long is told once, and its result is that of a quick one.
func TestSlowReadIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		slow := func() { told++ }

		got, ok := await(t.Context(), slow, func() int { time.Sleep(slowRead - 1); return 1 })
		if got != 1 || !ok || told != 0 {
			t.Errorf("a quick read: %d, %v, told %d times", got, ok, told)
		}
		got, ok = await(t.Context(), slow, func() int { time.Sleep(3 * slowRead); return 2 })
		if got != 2 || !ok || told != 1 {
			t.Errorf("a slow read: %d, %v, told %d times", got, ok, told)
		}

		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if got, ok = await(ctx, slow, func() int { time.Sleep(slowRead); return 3 }); got != 0 || ok || told != 1 {
			t.Errorf("at the end: %d, %v, told %d times", got, ok, told)
		}
		time.Sleep(slowRead) // for the read that was left behind
	})
}
