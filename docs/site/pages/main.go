// Command site makes a web site of the documentation: the pages that docs/README.md lists, as
// HTML and, for language models, as Markdown, with the playground beside them. Any server of
// files can serve the folder.
//
//	go -C docs/site/pages run . -o /tmp/site -serve 127.0.0.1:8080
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	dir := flag.String("o", "", "the `folder` to write to, which is made")
	base := flag.String("url", "/", "the `URL` under which the site will be, for the page of errors and llms.txt")
	address := flag.String("serve", "", "then serve the folder at an `address`, such as 127.0.0.1:8080")
	flag.Parse()

	// Without a folder there is nothing to do.
	if *dir == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}

	err := run(*dir, *base)
	if err == nil && *address != "" {
		fmt.Printf("http://%s/\n", *address)
		server := &http.Server{Addr: *address, Handler: files(*dir), ReadHeaderTimeout: time.Minute}
		err = server.ListenAndServe()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// run writes the site and the playground into a folder.
func run(dir, base string) error {
	u, err := url.Parse(base)
	if err != nil || u.RawQuery != "" || u.Fragment != "" || !strings.HasPrefix(u.Path, "/") {
		return fmt.Errorf("-url: %q is neither / nor a URL with a path, such as https://example.org/headgate/", base)
	}

	// All mistakes are known before anything is written.
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	root, err := rootOf(".")
	if err != nil {
		return err
	}
	s, err := read(root, strings.TrimSuffix(base, "/")+"/")
	if err != nil {
		return err
	}
	if err := s.write(dir); err != nil {
		return err
	}

	// The playground is a program of the root module, which compiles another for the browser.
	make := exec.Command("go", "run", "./docs/site/playground", "-o", filepath.Join(dir, "playground"))
	make.Dir, make.Stderr = root, os.Stderr
	if err := make.Run(); err != nil {
		return fmt.Errorf("the playground: %w", err)
	}
	return nil
}

// rootOf returns the folder of the repository that holds a folder.
func rootOf(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	for err == nil {
		mod, e := os.ReadFile(filepath.Join(dir, "go.mod"))
		if e == nil && strings.HasPrefix(string(mod), "module github.com/headgate/headgate\n") {
			return dir, nil
		}

		// The folder of all folders is its own.
		if dir == filepath.Dir(dir) {
			err = errors.New("this folder is in no clone of headgate")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// files serves a folder, with its page of errors in place of what is not there.
func files(dir string) http.Handler {
	server := http.FileServer(http.Dir(dir))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := http.Dir(dir).Open(r.URL.Path)
		if err == nil {
			f.Close()
			server.ServeHTTP(w, r)
			return
		}

		text, err := os.ReadFile(filepath.Join(dir, "404.html"))
		if err != nil {
			http.NotFound(w, r)
			return
		}

		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		w.Write(text)
	})
}
