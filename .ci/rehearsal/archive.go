package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// wanted is how long a console takes at most from its start until it serves, with a new database.
const wanted = 6 * time.Second

// archive makes the archive of this platform as a release does, unpacks it in an empty folder, and
// starts the console from there.
func (s *sandbox) archive(ctx context.Context, script string) error {
	out, dir := filepath.Join(s.folder, "dist"), filepath.Join(s.folder, "unpacked")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	err := s.steps(ctx, s.folder, "bash "+script+" "+s.version+" "+out+" "+runtime.GOOS+"/"+runtime.GOARCH)
	if err != nil {
		return err
	}

	// What a user does with it.
	name := fmt.Sprintf("headgate_%s_%s_%s", strings.TrimPrefix(s.version, "v"), runtime.GOOS, runtime.GOARCH)
	err = s.steps(ctx, out, "sha256sum --check --strict SHA256SUMS", "tar -xzf "+name+".tar.gz -C "+dir)
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, name)
	for _, program := range []string{"headgate", "headgate-gateway", "headgate-console"} {
		binary := filepath.Join(dir, program)
		if err := errors.Join(s.released(binary), static(binary)); err != nil {
			return err
		}
	}

	took, err := serves(ctx, filepath.Join(dir, "headgate-console"), s.folder)
	if err != nil {
		return fmt.Errorf("the console of the archive: %w", err)
	}
	fmt.Println("the console of the archive served after", took)
	return nil
}

// static returns an error if the kernel has to find another file to run a program.
func static(binary string) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	f, err := elf.Open(binary)
	if err != nil {
		return err
	}
	defer f.Close()

	// A static program names neither a loader nor a library.
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static: it names a loader", binary)
		}
	}
	libraries, err := f.ImportedLibraries()
	if len(libraries) > 0 {
		err = fmt.Errorf("%s is not static: it needs %s", binary, libraries)
	}
	return err
}

// serves starts a console in a folder, asks for its health, and returns how long it took to serve,
// as it says itself.
func serves(ctx context.Context, binary, folder string) (took time.Duration, err error) {
	server, err := start(ctx, binary, "-listen", "127.0.0.1:0", "-data", filepath.Join(folder, "data of archive"))
	if err != nil {
		return 0, err
	}
	defer server.kill()

	line, err := server.await(regexp.MustCompile(`msg=serving (.*)`))
	if err != nil {
		return 0, err
	}
	says := regexp.MustCompile(`^address=(\S+) .*took=(\S+)$`).FindStringSubmatch(line)
	if says == nil {
		return 0, fmt.Errorf("it says %q", line)
	}
	if took, err = time.ParseDuration(says[2]); err != nil || took > wanted {
		return 0, fmt.Errorf("it took %s, want at most %s: %v", says[2], wanted, err)
	}

	status, body, err := get(ctx, "http://"+says[1]+"/healthz")
	if err != nil || status != http.StatusOK || body != "ok\n" {
		return 0, fmt.Errorf("/healthz answered %d %q, %v; want 200 \"ok\\n\"", status, body, err)
	}
	return took, server.interrupt()
}
