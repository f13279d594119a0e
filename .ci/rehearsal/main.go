// Rehearsal releases every module of the repository into a folder, and installs
// and uses them from there as users will.
//
// It packs the modules at a version of its own into a folder that the go command
// takes for a module proxy. In empty folders outside of the repository it then
//
//   - installs the console with go install, starts it, and asks for its health;
//   - makes the archive of this platform with .ci/release, unpacks it, and starts the console from
//     there, which has to be static and to serve within six seconds;
//   - builds the gateway, starts it, and asks it until a request is refused;
//   - builds the quickstart, and asks it until a request is refused;
//   - builds the first program of the README with go get, starts it, and asks it
//     until a request is refused;
//   - adds headgate to a program on an older Gin, and checks that it keeps its Gin;
//   - adds each adapter that is a module of its own to an empty program, and runs the
//     adapter's tests on the versions that it asks for.
//
// At the end it prints the tags of a release in the order in which they are pushed.
//
// The working folder is the root of the repository, whose tracked files are packed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// root is the module in the folder that holds all others.
const root = "github.com/headgate/headgate"

// timeout bounds the whole rehearsal. It takes seconds with all other modules in the
// module cache.
const timeout = 10 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not done within %s", timeout))
	defer cancel()
	err := rehearse(ctx)
	if ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rehearsal:", err)
		os.Exit(1)
	}
}

func rehearse(ctx context.Context) (err error) {
	// No release has this version, so it is no harm that the module cache, which
	// all go commands share, keeps it until the end.
	version := "v0.1.0-rehearsal." + time.Now().UTC().Format("20060102150405") + fmt.Sprint(".p", os.Getpid())
	folder, err := os.MkdirTemp("", "rehearsal")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	modules, err := find(ctx, ".")
	if err != nil {
		return err
	}
	proxy := filepath.Join(folder, "proxy")
	for _, m := range modules {
		if err := m.pack(proxy, version, modules); err != nil {
			return err
		}
		fmt.Printf("packed %s@%s\n", m.path, version)
	}
	program, err := firstProgram("README.md")
	if err != nil {
		return err
	}
	release, err := filepath.Abs(".ci/release")
	if err != nil {
		return err
	}

	s := &sandbox{folder: folder, version: version}
	if err := s.open(ctx, proxy); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.uncache(modules)) }()
	err = errors.Join(s.console(ctx), s.archive(ctx, release), s.gateway(ctx), s.quickstart(ctx),
		s.readme(ctx, program), s.olderGin(ctx), s.adapters(ctx, modules))
	if err != nil {
		return err
	}

	rounds, err := tags(modules, "VERSION")
	if err != nil {
		return err
	}
	fmt.Println("A release has these tags. Push those of a line before the go.mod files of the next name them.")
	for _, round := range rounds {
		fmt.Println(" ", strings.Join(round, " "))
	}
	return nil
}
