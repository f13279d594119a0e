// Command playground makes the folder of the playground: a page that draws what a typed limit
// admits. Any server of files can serve the folder, under any path.
//
//	go run ./docs/site/playground -o /tmp/playground -serve 127.0.0.1:8080
package main

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/playground"
)

//go:embed page
var page embed.FS

// program is the package that the browser runs.
const program = "github.com/headgate/headgate/docs/site/playground/wasm"

func main() {
	dir := flag.String("o", "", "the `folder` to write to, which is made")
	address := flag.String("serve", "", "then serve the folder at an `address`, such as 127.0.0.1:8080")
	flag.Parse()

	// Without a folder there is nothing to do.
	if *dir == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}

	err := build(*dir)
	if err == nil && *address != "" {
		fmt.Printf("http://%s/\n", *address)
		server := &http.Server{Addr: *address, Handler: http.FileServer(http.Dir(*dir)), ReadHeaderTimeout: time.Minute}
		err = server.ListenAndServe()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

// build writes the files of the page, the program and its loader into a folder.
func build(dir string) error {
	// The page, and its picture for browsers without scripts.
	files, err := fs.Sub(page, "page")
	if err != nil {
		return err
	}
	list, err := fs.ReadDir(files, ".")
	if err != nil {
		return err
	}
	picture, err := still(files)

	written := []error{err, os.MkdirAll(dir, 0o755), write(dir, "limit.svg", []byte(picture))}
	for _, f := range list {
		text, err := fs.ReadFile(files, f.Name())
		written = append(written, err, write(dir, f.Name(), text))
	}

	// The loader belongs to the Go that compiles the program.
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	loader, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js"))
	written = append(written, err, write(dir, "wasm_exec.js", loader))
	if err := errors.Join(written...); err != nil {
		return err
	}

	// The program is compiled for the browser, and stripped of what debuggers need.
	to, err := filepath.Abs(filepath.Join(dir, "playground.wasm"))
	if err != nil {
		return err
	}
	compile := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, program)
	compile.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	compile.Stderr = os.Stderr
	return compile.Run()
}

func write(dir, name string, text []byte) error {
	return os.WriteFile(filepath.Join(dir, name), text, 0o644)
}

// still returns the picture of a limit with the colours of the page in it.
func still(files fs.FS) (string, error) {
	style, err := fs.ReadFile(files, "playground.css")
	p, faults := playground.Play(playground.Form{Limit: "100/1m burst=20", And: "100/1m fixed-window",
		Requests: "steady 5/1s", For: "3m"}, 480)
	if len(faults) > 0 {
		return "", errors.New(faults[0].Text)
	}
	return strings.Replace(p.SVG, "<title", "<style>"+string(style)+"</style><title", 1), err
}
