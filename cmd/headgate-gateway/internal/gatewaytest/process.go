package gatewaytest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
)

// Patience bounds every wait for a program. Programs usually take milliseconds.
const Patience = 30 * time.Second

// Process is a program that ends with its test.
type Process struct {
	t       testing.TB
	path    string
	output  string // the path of what it writes
	process *os.Process
	done    <-chan struct{} // closed when it has ended
}

// Run starts a program and waits until ready returns nil. The test fails if the program
// ends before, or after Patience. It is killed when the test ends, also, on Linux, by the
// death of the test binary.
func Run(t testing.TB, ready func(context.Context) error, path string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, path: path, output: filepath.Join(t.TempDir(), "output")}
	p.launch(args)
	t.Cleanup(p.Kill)

	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	// A program that ends is seen before the next question, which would else be asked until the
	// time is over.
	for {
		err := ready(ctx)
		if err == nil {
			return p
		}
		select {
		case <-p.done:
			t.Fatalf("%s ends at once:\n%s", path, p.Output())
		case <-ctx.Done():
			t.Fatalf("%s is not ready: %v\n%s", path, err, p.Output())
		default: // a connection that is refused takes long enough for the program to go on
			runtime.Gosched()
		}
	}
}

// launch starts the program.
func (p *Process) launch(args []string) {
	p.t.Helper()
	output, err := os.Create(p.output)
	if err != nil {
		p.t.Fatal(err)
	}
	defer output.Close()

	cmd := exec.Command(p.path, args...)
	cmd.Stdout, cmd.Stderr = output, output
	if p.done, err = test.Launch(cmd); err != nil {
		p.t.Fatal(err)
	}
	p.process = cmd.Process
}

// Output returns what the program has written.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.output)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Signal sends the program a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Wait waits until the program has ended by itself.
func (p *Process) Wait() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.t.Fatalf("%s does not end:\n%s", p.path, p.Output())
	}
}

// Stop asks the program to end, and waits for that.
func (p *Process) Stop() {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	p.Wait()
}

// Kill ends the program without warning and waits for its end.
func (p *Process) Kill() {
	p.process.Kill()
	<-p.done
}

// Answers returns a function for Run that succeeds when the URL is answered with the status.
func Answers(url string, status int) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}

		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := c.Do(r)
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode != status {
			return fmt.Errorf("%s: %s", url, answer.Status)
		}
		return nil
	}
}

// Accepts returns a function for Run that succeeds when the address accepts a connection.
func Accepts(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// Config writes a copy of an example's configuration, in which each old text is replaced
// by the new one after it, and returns its path. A text that is not there fails the test.
func Config(t testing.TB, path string, replace ...string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)

	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("%s has no %q", path, replace[i])
		}
	}

	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(out, []byte(strings.NewReplacer(replace...).Replace(text)), 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}
