// Rehearsal packs every module of the repository as a release and uses it as its
// users will: with go install and go get, from an empty folder, without the
// repository. It is started by .ci/rehearse in the root of the repository.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	root    = "github.com/headgate/headgate"
	version = "v0.1.0"
)

func main() {
	if err := rehearse(); err != nil {
		fmt.Fprintln(os.Stderr, "rehearsal:", err)
		os.Exit(1)
	}
}

func rehearse() error {
	temp, err := os.MkdirTemp("", "headgate-rehearsal-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	proxy := filepath.Join(temp, "proxy")
	if err := pack(proxy); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	program, err := firstProgram()
	if err != nil {
		return err
	}
	u, err := newUser(temp, proxy)
	if err != nil {
		return err
	}
	defer u.forget()
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"go install of the console", u.console},
		{"the first program of the README", func() error { return u.app(program) }},
		{"a program on an older Gin", u.olderGin},
	} {
		begin := time.Now()
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Printf("ok  %s (%d s)\n", step.name, int(time.Since(begin).Seconds()))
	}
	return nil
}

// pack writes every module of the commit at HEAD into a folder that is a module
// proxy.
func pack(proxy string) error {
	out, err := exec.Command("git", "ls-files", "go.mod", "*/go.mod").Output()
	if err != nil {
		return err
	}
	for _, file := range strings.Fields(string(out)) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name := modfile.ModulePath(text)
		if name != root && !strings.HasPrefix(name, root+"/") {
			continue // a tool of the repository
		}
		if err := checkRelease(file, text); err != nil {
			return err
		}
		if err := packModule(proxy, name, path.Dir(file), text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// checkRelease refuses what keeps go install from working.
func checkRelease(file string, text []byte) error {
	f, err := modfile.Parse(file, text, nil)
	if err != nil {
		return err
	}
	if len(f.Replace) > 0 {
		return fmt.Errorf("%s has a replace", file)
	}
	for _, r := range f.Require {
		if strings.HasPrefix(r.Mod.Path, root) && r.Mod.Version != version {
			return fmt.Errorf("%s requires %s, not %s", file, r.Mod, version)
		}
	}
	return nil
}

func packModule(proxy, name, dir string, text []byte) error {
	escaped, err := module.EscapePath(name)
	if err != nil {
		return err
	}
	folder := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var archive bytes.Buffer
	subdir := dir
	if dir == "." {
		subdir = ""
	}
	if err := zip.CreateFromVCS(&archive, module.Version{Path: name, Version: version}, ".", "HEAD", subdir); err != nil {
		return err
	}
	info := fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, version)
	for file, content := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": []byte(info),
		version + ".mod":  text,
		version + ".zip":  archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(folder, file), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// firstProgram is the first whole program of the README.
func firstProgram() (string, error) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		return "", err
	}
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(text, -1) {
		if bytes.HasPrefix(block[1], []byte("package main")) {
			return string(block[1]), nil
		}
	}
	return "", errors.New("README.md has no program")
}

// user is somebody else's machine: the module cache is shared with this one, as far
// as it holds other projects.
type user struct {
	temp, cache string
	env         []string
}

func newUser(temp, proxy string) (*user, error) {
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, err
	}
	cache, rest, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	u := &user{temp: temp, cache: cache}
	u.env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw", "GONOSUMDB="+root+","+root+"/*",
		"GOBIN="+filepath.Join(temp, "bin"), "GOPROXY=file://"+filepath.ToSlash(proxy)+","+strings.TrimSpace(rest))
	return u, u.forget()
}

// forget removes the rehearsed release from the module cache.
func (u *user) forget() error {
	escaped := filepath.FromSlash(path.Dir(root))
	return errors.Join(
		os.RemoveAll(filepath.Join(u.cache, escaped)),
		os.RemoveAll(filepath.Join(u.cache, "cache", "download", escaped)))
}

// run runs a command in a folder outside of the repository and returns its output.
func (u *user) run(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, u.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// folder makes an empty folder with files.
func (u *user) folder(name string, files map[string]string) (string, error) {
	dir := filepath.Join(u.temp, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

var listening = regexp.MustCompile(`address=(\S+)`)

// console installs the management page, starts it, and asks for its health.
func (u *user) console() error {
	dir, err := u.folder("console", nil)
	if err != nil {
		return err
	}
	if _, err := u.run(dir, "go", "install", root+"/console@"+version); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(u.temp, "bin", "console"), "-listen", "127.0.0.1:0")
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	defer cmd.Wait()
	defer cancel()
	var told strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		told.WriteString(lines.Text() + "\n")
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			go io.Copy(io.Discard, out)
			return wantStatus("http://"+m[1]+"/healthz", http.StatusOK)
		}
	}
	return fmt.Errorf("no address in its output:\n%s", &told)
}

// app gets the library for a program that listens on ":8080", and asks it until
// the limit is reached.
func (u *user) app(program string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := listener.Addr().String()
	listener.Close()
	if !strings.Contains(program, `":8080"`) {
		return errors.New(`it does not listen on ":8080"`)
	}
	dir, err := u.folder("app", map[string]string{"main.go": strings.Replace(program, `":8080"`, `"`+addr+`"`, 1)})
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"mod", "init", "app"}, {"get", root + "@" + version}, {"mod", "tidy"}, {"build", "-o", "app", "."}} {
		if _, err := u.run(dir, "go", args...); err != nil {
			return err
		}
	}
	cmd := exec.Command(filepath.Join(dir, "app"))
	if err := cmd.Start(); err != nil {
		return err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if err := wantStatus("http://"+addr+"/", http.StatusOK); err != nil {
		return err
	}
	for range 1000 {
		resp, err := http.Get("http://" + addr + "/")
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "" {
			return nil
		}
	}
	return errors.New("1000 requests passed a limit of 100 a minute")
}

// wantStatus asks until the server answers.
func wantStatus(url string, status int) error {
	var err error
	for range 300 {
		var resp *http.Response
		if resp, err = http.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode != status {
				return fmt.Errorf("%s answers %s", url, resp.Status)
			}
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

const ginProgram = `package main

import (
	_ "github.com/gin-gonic/gin"
	_ "github.com/headgate/headgate/nethttp"
	_ "github.com/headgate/headgate/store/memstore"
)

func main() {}
`

// olderGin checks that a program keeps its Gin when it gets the library.
func (u *user) olderGin() error {
	const gin = "github.com/gin-gonic/gin"
	dir, err := u.folder("gin", map[string]string{"main.go": ginProgram})
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"mod", "init", "app"}, {"get", gin + "@v1.9.1"}, {"get", root + "@" + version}, {"mod", "tidy"}, {"build", "-o", "app", "."}} {
		if _, err := u.run(dir, "go", args...); err != nil {
			return err
		}
	}
	got, err := u.run(dir, "go", "list", "-m", gin)
	if err != nil {
		return err
	}
	if want := gin + " v1.9.1\n"; got != want {
		return fmt.Errorf("it has %s, not %s", strings.TrimSpace(got), strings.TrimSpace(want))
	}
	return nil
}
