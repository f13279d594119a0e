package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/policy/policyyaml"
)

var fmtCommand = command{
	name: "fmt", args: "FILE…",
	does: "writes policies in one form, and keeps the comments",
	examples: []string{
		"headgate fmt limits.yaml",
		"headgate fmt -d limits.yaml",
		"headgate fmt -w limits.yaml plans.json",
	},
	setup: func(f *flag.FlagSet) func(*env, []string) int {
		write := f.Bool("w", false, "write the result to the file instead of printing it")
		diff := f.Bool("d", false, "print the differences, and exit with 1 if there are any")
		asJSON := f.Bool("json", false, "print which files have another form as JSON")
		return func(e *env, files []string) int { return format(e, files, *write, *diff, *asJSON) }
	},
}

func format(e *env, files []string, write, diff, asJSON bool) int {
	switch {
	case len(files) == 0:
		return e.fail("fmt: no file is named; see headgate help fmt")
	case write && diff:
		return e.fail("fmt: -w and -d are not for one call")
	}

	code, changed := fine, []string{}
	for _, name := range files {
		p, text, err := e.formatted(name)
		if err != nil {
			return e.fail("fmt: %s", safe(err.Error()))
		}

		// A file with mistakes stays as it is.
		if p.count(mistake) > 0 {
			shown := *e
			shown.out = e.err
			printFindings(&shown, p.findings)
			code = findings
			continue
		}
		if bytes.Equal(p.data, text) {
			if !write && !diff && !asJSON {
				e.out.Write(text)
			}
			continue
		}
		changed = append(changed, name)
		if diff {
			code = findings
		}
		if err := e.show(p, text, write, diff, asJSON); err != nil {
			return e.fail("fmt: %s", safe(err.Error()))
		}
	}

	if asJSON {
		return max(code, e.printJSON(map[string]any{"changed": changed}))
	}

	return code
}

// show writes or prints the form of a file that has another.
func (e *env) show(p *policyFile, text []byte, write, diff, asJSON bool) error {
	switch {
	case write:
		return replace(p.name, text)
	case asJSON:
	case diff:
		printDiff(e, p.name, string(p.data), string(text))
	default:
		e.out.Write(text)
	}
	return nil
}

// formatted reads a file, and returns its policies in their one form, unless it has mistakes.
func (e *env) formatted(name string) (*policyFile, []byte, error) {
	p, err := e.readPolicies(name)
	if err != nil || p.count(mistake) > 0 {
		return p, nil, err
	}
	if p.json {
		text, err := p.lines.EncodeJSON(p.set)
		return p, text, err
	}
	text, err := policyyaml.Format(p.data)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return p, text, err
}

// replace replaces a file by another of the text, so that a reader sees the one or the other. Of a
// symbolic link it replaces the file that the link leads to.
func replace(name string, text []byte) (err error) {
	if name, err = filepath.EvalSymlinks(name); err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}

	f, err := os.CreateTemp(filepath.Dir(name), ".headgate-fmt-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()

	// The other file has the owner and the permissions of the first, and is whole on the disk
	// before it takes its place.
	err = fill(f, text, info)
	if bad := f.Close(); err == nil {
		err = bad
	}
	if err != nil {
		return err
	}

	return os.Rename(f.Name(), name)
}

// fill writes the text into a new file, which gets the owner and the permissions of another.
func fill(f *os.File, text []byte, as os.FileInfo) error {
	if _, err := f.Write(text); err != nil {
		return err
	}
	if err := keepOwner(f, as); err != nil {
		return fmt.Errorf("the owner of %s cannot be kept: %w", as.Name(), err)
	}
	if err := f.Chmod(as.Mode().Perm()); err != nil {
		return err
	}
	return f.Sync()
}

// printDiff prints the lines that differ in the manner of diff -u.
func printDiff(e *env, name, before, after string) {
	fmt.Fprintf(e.out, "%s\n%s\n", e.paint(bold, "--- "+safe(name)), e.paint(bold, "+++ "+safe(name)))
	for _, h := range hunks(before, after) {
		fmt.Fprintf(e.out, "@@ -%d,%d +%d,%d @@\n", h.from, h.old, h.to, h.new)
		for _, line := range h.lines {
			text := line[:1] + safe(line[1:])
			switch line[0] {
			case '-':
				text = e.paint(red, text)
			case '+':
				text = e.paint(green, text)
			}
			fmt.Fprintln(e.out, text)
		}
	}
}
