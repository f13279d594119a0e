// This file starts this program, and what it stands before, as processes of the tests.

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
)

// roleVariable says what a process does that a test starts.
const roleVariable = "HEADGATE_GATEWAY_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "gateway":
		main()
	case "upstream":
		serveBare(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(answer) }))
	case "bare":
		u, err := url.Parse(os.Args[1])
		if err != nil {
			panic(err)
		}

		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 512 // or most of the time goes into new connections
		serveBare(&httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.SetXForwarded()
		}})
	default:
		test.Exit(m.Run())
	}
}

var answer = bytes.Repeat([]byte("hello, world\n"), 80) // about 1 kB

// serveBare serves on a port that it prints in the form of the gateway's log.
func serveBare(h http.Handler) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stderr, "msg=serving face=bare address=%s\n", l.Addr())
	panic(http.Serve(l, h))
}

// process is a process of the test.
type process struct {
	cmd       *exec.Cmd
	addresses map[string]string // by face
	ended     chan error        // of Wait

	mu  sync.Mutex
	out strings.Builder // what it has printed
}

// begin starts this program in a role. The process ends with the test.
func begin(t *testing.T, role string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], args...), addresses: map[string]string{}, ended: make(chan error, 1)}

	p.cmd.Env = append(os.Environ(), roleVariable+"="+role)

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}

	// This side of the pipe is closed after the start, so that reading ends when the process does.
	p.cmd.Stdout, p.cmd.Stderr = w, w
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}

	read := make(chan bool)
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			p.note(lines.Text())
		}
		r.Close()
	}()

	go func() {
		err := p.cmd.Wait()
		<-read
		p.ended <- err
	}()

	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
		if strings.Contains(p.output(), "DATA RACE") { // a test with -race starts processes with it
			t.Errorf("it has printed\n%s", p.output())
		}
	})
	return p
}

// note keeps a line, and the address that it tells.
func (p *process) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.WriteString(line + "\n")
	if _, rest, found := strings.Cut(line, "msg=serving face="); found {
		face, address, _ := strings.Cut(rest, " address=")
		p.addresses[face], _, _ = strings.Cut(address, " ")
	}
}

// output returns what the process has printed so far.
func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// address returns the address of a face once the process serves it.
func (p *process) address(t *testing.T, face string) string {
	t.Helper()
	var address string
	p.until(t, "it serves "+face, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		address = p.addresses[face]
		return address != ""
	})
	return address
}

// until waits until a condition holds, for at most a minute.
func (p *process) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s; it has printed\n%s", what, p.output())
		}
	}
}

// end waits for the end of the process, and returns its exit code.
func (p *process) end(t *testing.T) int {
	t.Helper()
	select {
	case err := <-p.ended:
		p.ended <- err
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(time.Minute):
		t.Fatalf("it does not end; it has printed\n%s", p.output())
		return 0
	}
}
