package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/accesslog"
)

// A program that rotates logs renames the file and sends the signal.
func TestGatewayOpensTheAccessLogAnewAtHangup(t *testing.T) {
	upstream, _, _ := slow(t)
	path := filepath.Join(t.TempDir(), "access.log")
	p := begin(t, "gateway", "-listen", "127.0.0.1:0", "-upstream", upstream, "-access-log", path,
		"-policies", file(t, "1/1h"))
	url := "http://" + p.address(t, "proxy")

	if status := get(t, url+"/before"); status != 200 {
		t.Fatalf("answered with %d", status)
	}
	lines := func(path string) int {
		text, _ := os.ReadFile(path) // it may not be there yet
		return strings.Count(string(text), "\n")
	}
	p.until(t, "the first line is written", func() bool { return lines(path) == 1 })

	// The refusal after the signal is in the new file, and names the policy.
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.until(t, "the log is opened anew", func() bool { return strings.Contains(p.output(), "was opened anew") })
	if status := get(t, url+"/after"); status != 429 {
		t.Errorf("answered with %d", status)
	}

	p.cmd.Process.Signal(os.Interrupt)
	if code := p.end(t); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, p.output())
	}

	// Both files are whole after the end, and the reader of headgate plan reads them.
	for name, want := range map[string]string{path + ".1": "/before", path: "/after"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := accesslog.New(name, strings.NewReader(string(text)), accesslog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := r.Next(); err != nil || e.Target != want || e.Address != "127.0.0.1" ||
			(want == "/after") != strings.Contains(string(text), `"policy":"limita"`) {
			t.Errorf("%s: %+v %v\n%s", name, e, err, text)
		}
	}
}
