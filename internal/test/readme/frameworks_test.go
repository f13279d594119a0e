package readme

import (
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/freeport"
)

// The programs of the pages about frameworks limit by address, by user and by route.
func TestFrameworksLimitAsTheirPagesSay(t *testing.T) {
	module := newModule(t)
	for _, framework := range []string{"nethttp", "gin", "echo", "fiber"} {
		t.Run(framework, func(t *testing.T) {
			address := freeport.Addr(t)
			startPage(t, module, framework, address)

			// Users share no count, nor does a request without a user take from one.
			ask := func(method, path, token string) int { return status(t, method, "http://"+address+path, token) }
			want := func(what string, got, want int) {
				if got != want {
					t.Errorf("%s: status %d, want %d", what, got, want)
				}
			}
			for range 5 {
				want("alice within her limit", ask("GET", "/api/things", "alice-token"), 200)
				want("a guessed token", ask("GET", "/api/things", "mallory-token"), 401)
			}

			want("alice over her limit", ask("GET", "/api/things", "alice-token"), 429)
			want("bob", ask("GET", "/api/things", "bob-token"), 200)

			for range 3 {
				want("a log-in", ask("POST", "/login", ""), 401)
			}
			got, text := answer(t, "POST", "http://"+address+"/login", "")
			want("a fourth log-in", got, 429)
			if !strings.Contains(text, `"error":"too many log-ins"`) {
				t.Errorf("the answer to a fourth log-in is not the page's own: %s", text)
			}
		})
	}
}

// startPage builds the program of a page and starts it at an address.
func startPage(t *testing.T, module, page, address string) {
	t.Helper()
	var program string
	for _, snippet := range snippets(t, "docs/"+page+".md") {
		if isProgram(snippet) {
			program = snippet
		}
	}
	run(t, module, page, replaced(t, program, "127.0.0.1:8080", address), address)
}

// replaced returns the text with another address in the place of the only one that it has.
func replaced(t *testing.T, text, address, other string) string {
	t.Helper()
	if strings.Count(text, address) != 1 {
		t.Fatalf("%s does not stand once in\n%s", address, text)
	}
	return strings.Replace(text, address, other, 1)
}

// run builds a program, starts it, and waits until it serves at the address. It returns what the
// program has written so far.
func run(t *testing.T, module, name, program, address string) (output func() string) {
	t.Helper()
	write(t, filepath.Join(module, name, "main.go"), []byte(program))
	build := exec.Command("go", "build", "-o", name+".exe", "./"+name)
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	return serve(t, exec.Command(filepath.Join(module, name+".exe")), address)
}

// serve starts a server and waits until it serves at the address.
func serve(t *testing.T, server *exec.Cmd, address string) (output func() string) {
	t.Helper()
	var log test.Log
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", server.Path, log.String())
		}
	})

	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if answer, err := net.Dial("tcp", address); err == nil {
			answer.Close()
			return log.String
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not serve", server.Path)
		}
	}
}

// status returns the status of the answer to a request.
func status(t *testing.T, method, url, token string) int {
	t.Helper()
	code, _ := answer(t, method, url, token)
	return code
}

// answer returns the status and the body of the answer to a request.
func answer(t *testing.T, method, url, token string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)

	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
