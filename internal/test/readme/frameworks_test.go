package readme

import (
	"bytes"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/freeport"
)

// The programs of the pages about frameworks limit by address, by user and by route.
func TestFrameworksLimitAsTheirPagesSay(t *testing.T) {
	module := newModule(t)
	for _, framework := range []string{"nethttp", "gin", "echo", "fiber"} {
		t.Run(framework, func(t *testing.T) {
			address := freeport.Addr(t)
			start(t, module, framework, address)

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
			want("a fourth log-in", ask("POST", "/login", ""), 429)
		})
	}
}

// start builds the program of a page and starts it at an address.
func start(t *testing.T, module, page, address string) {
	t.Helper()
	program := ""
	for _, snippet := range snippets(t, "docs/"+page+".md") {
		if isProgram(snippet) {
			program = snippet
		}
	}
	if strings.Count(program, "127.0.0.1:8080") != 1 {
		t.Fatalf("docs/%s.md has no program at 127.0.0.1:8080", page)
	}
	write(t, filepath.Join(module, page, "main.go"), []byte(strings.Replace(program, "127.0.0.1:8080", address, 1)))

	build := exec.Command("go", "build", "-o", page+".exe", "./"+page)
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	var out bytes.Buffer
	server := exec.Command(filepath.Join(module, page+".exe"))
	server.Stdout, server.Stderr = &out, &out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
		if t.Failed() {
			t.Logf("%s", &out)
		}
	})

	// A request for nothing that is limited by more than the address shows that it serves.
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if answer, err := http.Get("http://" + address + "/"); err == nil {
			answer.Body.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not serve", page)
		}
	}
}

// status returns the status of the answer to a request.
func status(t *testing.T, method, url, token string) int {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)

	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}
