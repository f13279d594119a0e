package main

import (
	"bufio"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// oldGin is a Gin that many programs are on.
const oldGin = "v1.9.1"

// sandbox is a folder in which commands run as a user would run them.
type sandbox struct {
	folder  string
	version string
	cache   string   // the module cache
	env     []string // of the commands
}

// open prepares the sandbox for go commands that find the modules of the
// repository in the proxy, all others where this machine finds them, and nothing
// in the repository itself.
func (s *sandbox) open(ctx context.Context, proxy string) error {
	s.env = os.Environ()
	out, err := s.run(ctx, s.folder, "go", "env", "GOPROXY", "GOMODCACHE")
	if err != nil {
		return err
	}
	own, cache, _ := strings.Cut(strings.TrimSpace(out), "\n")
	s.cache = strings.TrimSpace(cache)
	s.env = append(s.env,
		"GOPROXY=file://"+filepath.ToSlash(proxy)+","+strings.TrimSpace(own),
		// With any GONOPROXY the go command first looks at the module cache alone, and takes the root
		// that it finds there for the module of each program. What go env -w has set is read above.
		"GOENV=off", "GOMODCACHE="+s.cache, "GOPRIVATE=", "GONOPROXY=", "GONOSUMDB="+root, "GOWORK=off",
		"GOFLAGS=-trimpath", "CGO_ENABLED=0", // as .ci/release has it, so that nothing is compiled twice
		"GOBIN="+filepath.Join(s.folder, "bin"))
	return nil
}

// run carries out a command and returns what it prints.
func (s *sandbox) run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(s.env[:len(s.env):len(s.env)], "PWD="+dir)
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, stderr.String(), out.String())
	}
	return out.String(), nil
}

// steps carries out commands one after the other, until one fails.
func (s *sandbox) steps(ctx context.Context, dir string, commands ...string) error {
	for _, c := range commands {
		fmt.Println("$", c)
		args := strings.Fields(c)
		if _, err := s.run(ctx, dir, args[0], args[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// app makes an empty folder with one program in it.
func (s *sandbox) app(name, program string) (string, error) {
	dir := filepath.Join(s.folder, name)
	return dir, errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o644))
}

// console installs the console, starts it on SQLite, and asks for its health.
func (s *sandbox) console(ctx context.Context) error {
	if err := s.steps(ctx, s.folder, "go install "+root+"/cmd/headgate-console@"+s.version); err != nil {
		return err
	}

	binary := filepath.Join(s.folder, "bin", "headgate-console")
	if err := s.released(binary); err != nil {
		return err
	}

	server, err := start(ctx, binary, "-listen", "127.0.0.1:0", "-data", filepath.Join(s.folder, "data"))
	if err != nil {
		return err
	}
	defer server.kill()
	address, err := server.await(regexp.MustCompile(`msg=serving address=(\S+)`))
	if err != nil {
		return err
	}

	status, body, err := get(ctx, "http://"+address+"/healthz")
	if err != nil || status != http.StatusOK || body != "ok\n" {
		return fmt.Errorf("console: /healthz answered %d %q, %v; want 200 \"ok\\n\"", status, body, err)
	}

	if err := server.interrupt(); err != nil {
		return fmt.Errorf("console: after an interrupt: %w", err)
	}
	fmt.Println("the console is healthy")
	return nil
}

// gateway builds the gateway, starts it before a server, and asks it until it refuses a
// request.
func (s *sandbox) gateway(ctx context.Context) error {
	const module = root + "/cmd/headgate-gateway"
	dir, err := s.app("gateway", "package main\n\nfunc main() {}\n")
	if err != nil {
		return err
	}
	err = s.steps(ctx, dir, "go mod init app", "go mod edit -require="+module+"@"+s.version, "go build -mod=mod -o headgate-gateway "+module)
	if err != nil {
		return err
	}

	binary := filepath.Join(dir, "headgate-gateway")
	if err := s.released(binary); err != nil {
		return err
	}

	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	server, err := start(ctx, binary, "-listen", "127.0.0.1:0", "-upstream", upstream.URL)
	if err != nil {
		return err
	}
	defer server.kill()
	address, err := server.await(regexp.MustCompile(`msg=serving face=proxy address=(\S+)`))
	if err != nil {
		return err
	}

	n, err := untilRefused(ctx, "http://"+address+"/")
	if err != nil {
		return fmt.Errorf("the gateway: %w\n%s", err, server.output())
	}

	if err := server.interrupt(); err != nil {
		return fmt.Errorf("the gateway: after an interrupt: %w", err)
	}
	fmt.Printf("the gateway refused request %d\n", n)
	return nil
}

// released returns an error if the binary was built of modules of the repository at
// another version.
func (s *sandbox) released(binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	for _, m := range append(info.Deps, &info.Main) {
		if ours := m.Path == root || strings.HasPrefix(m.Path, root+"/"); ours && (m.Version != s.version || m.Replace != nil) {
			return fmt.Errorf("%s has %s %s, want %s", binary, m.Path, m.Version, s.version)
		}
	}
	return nil
}

// readme builds the first program of the README, starts it, and asks it until it
// refuses a request.
func (s *sandbox) readme(ctx context.Context, program string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := listener.Addr().String()
	listener.Close()

	dir, err := s.app("app", strings.ReplaceAll(program, listens.FindString(program), `"`+address+`"`))
	if err != nil {
		return err
	}
	if err := s.steps(ctx, dir, "go mod init app", "go get "+root+"@"+s.version, "go build -o app ."); err != nil {
		return err
	}

	binary := filepath.Join(dir, "app")
	if err := s.released(binary); err != nil {
		return err
	}

	server, err := start(ctx, binary)
	if err != nil {
		return err
	}
	defer server.kill()

	n, err := untilRefused(ctx, "http://"+address+"/")
	if err != nil {
		return fmt.Errorf("the first program of the README: %w\n%s", err, server.output())
	}
	fmt.Printf("the first program of the README refused request %d\n", n)
	return nil
}

// olderGin adds headgate to a program on an older Gin.
func (s *sandbox) olderGin(ctx context.Context) error {
	const gin = "github.com/gin-gonic/gin"
	dir, err := s.app("gin", fmt.Sprintf("package main\n\nimport (\n\t%q\n\t_ %q\n\t_ %q\n)\n\nfunc main() { gin.New() }\n",
		gin, root+"/nethttp", root+"/store/memstore"))
	if err != nil {
		return err
	}
	err = s.steps(ctx, dir, "go mod init app", "go get "+gin+"@"+oldGin, "go get "+root+"@"+s.version, "go mod tidy", "go build -o app .")
	if err != nil {
		return err
	}
	got, err := s.run(ctx, dir, "go", "list", "-m", "-f", "{{.Version}}", gin)
	if err != nil {
		return err
	}
	if got = strings.TrimSpace(got); got != oldGin {
		return fmt.Errorf("a program on Gin %s that imports nethttp and store/memstore is lifted to %s", oldGin, got)
	}
	fmt.Println("a program on Gin", oldGin, "keeps it")
	return nil
}

// quickstart builds the quickstart and has it refuse a request.
func (s *sandbox) quickstart(ctx context.Context) error {
	const program = root + "/examples/quickstart"
	dir, err := s.app("quickstart", "package main\n\nfunc main() {}\n")
	if err != nil {
		return err
	}
	err = s.steps(ctx, dir, "go mod init app", "go mod edit -require="+root+"@"+s.version,
		"go build -mod=mod -o app "+program)
	if err != nil {
		return err
	}

	binary := filepath.Join(dir, "app")
	if err := s.released(binary); err != nil {
		return err
	}

	server, err := start(ctx, binary, "-addr", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer server.kill()
	url, err := server.await(regexp.MustCompile(`listening on (\S+)`))
	if err != nil {
		return err
	}

	n, err := untilRefused(ctx, url)
	if err != nil {
		return fmt.Errorf("the quickstart: %w\n%s", err, server.output())
	}
	fmt.Printf("the quickstart refused request %d\n", n)
	return nil
}

// adapters adds each adapter that is a module of its own to an empty program, builds
// the program, and runs the adapter's tests.
func (s *sandbox) adapters(ctx context.Context, modules []*mod) error {
	for _, m := range modules {
		if !strings.HasPrefix(m.path, root+"/adapters/") {
			continue
		}
		name := path.Base(m.path)
		dir, err := s.app(name, fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", m.path))
		if err != nil {
			return err
		}
		// go get would also ask for newer versions of the framework. .ci/vet-all checks
		// the adapters, and go test would check all that they import.
		err = s.steps(ctx, dir, "go mod init app", "go mod edit -require="+m.path+"@"+s.version, "go build -mod=mod -o app .",
			"go test -mod=mod -count=1 -vet=off "+m.path+"/...")
		if err != nil {
			return err
		}
		if err := s.released(filepath.Join(dir, "app")); err != nil {
			return err
		}
		fmt.Println(name, "passes its tests")
	}
	return nil
}

// uncache removes the version from the module cache.
func (s *sandbox) uncache(modules []*mod) error {
	var errs []error
	for _, m := range modules {
		source := filepath.Join(s.cache, filepath.FromSlash(m.path)+"@"+s.version)
		filepath.WalkDir(source, func(name string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = os.Chmod(name, 0o755) // the go command makes it read-only
			}
			return err
		})
		errs = append(errs, os.RemoveAll(source))
		folder := filepath.Join(s.cache, "cache", "download", filepath.FromSlash(m.path), "@v")
		files, _ := filepath.Glob(filepath.Join(folder, s.version+".*"))
		for _, name := range files {
			errs = append(errs, os.Remove(name))
		}
		list := filepath.Join(folder, "list")
		if data, err := os.ReadFile(list); err == nil {
			errs = append(errs, os.WriteFile(list, []byte(strings.ReplaceAll(string(data), s.version+"\n", "")), 0o644))
		}
	}
	return errors.Join(errs...)
}

// process is a program that was started.
type process struct {
	cmd  *exec.Cmd
	all  strings.Builder
	text *bufio.Reader
	done chan error
}

// start starts a program that ends with ctx at the latest.
func start(ctx context.Context, name string, args ...string) (*process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, name, args...), text: bufio.NewReader(r), done: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		return nil, err
	}
	go func() { p.done <- p.cmd.Wait() }()
	return p, nil
}

// await reads what the program prints until a line matches, and returns the first
// group of it.
func (p *process) await(line *regexp.Regexp) (string, error) {
	for {
		text, err := p.text.ReadString('\n')
		p.all.WriteString(text)
		if found := line.FindStringSubmatch(text); found != nil {
			return found[1], nil
		}
		if err != nil {
			return "", fmt.Errorf("%s ended before it printed %q: %s", p.cmd.Path, line, p.all.String())
		}
	}
}

// interrupt ends the program as Ctrl-C does, and returns how it ended.
func (p *process) interrupt() error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	err := <-p.done
	p.done <- err
	return err
}

// kill ends the program.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// output ends the program and returns what it printed.
func (p *process) output() string {
	p.cmd.Process.Kill()
	io.Copy(&p.all, p.text)
	return p.all.String()
}

// untilRefused asks until an answer is 429 and returns how many requests that took.
// The first has to be let in. It waits for a server that does not listen yet.
func untilRefused(ctx context.Context, url string) (int, error) {
	end := time.Now().Add(30 * time.Second)
	for n := 1; ; n++ {
		status, _, err := get(ctx, url)
		switch {
		case time.Now().After(end):
			return n, fmt.Errorf("no request was refused, the last answer was %d, %v", status, err)
		case err != nil && n == 1:
			time.Sleep(10 * time.Millisecond)
			n--
		case err != nil:
			return n, err
		case status == http.StatusTooManyRequests && n > 1:
			return n, nil
		case status != http.StatusOK:
			return n, fmt.Errorf("request %d was answered with %d", n, status)
		}
	}
}

// get returns the status and the body of an answer. A 429 has to say when to come
// again.
func get(ctx context.Context, url string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if answer.StatusCode == http.StatusTooManyRequests && answer.Header.Get("Retry-After") == "" {
		err = errors.Join(err, errors.New("429 without Retry-After"))
	}
	return answer.StatusCode, string(body), err
}
