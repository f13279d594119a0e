package apply

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// Bounds of what is read.
const (
	maxFiles = policy.MaxPolicies // more files than policies have files without any
	maxBytes = 64 << 20           // of all files together; that much YAML is more than a set can hold
)

// source is where a policy was found.
type source struct {
	path  string
	lines *policyyaml.Lines
	index int // in the file
}

// placeOf returns the place of a field as "file:line".
func (s source) placeOf(field string) string {
	return fmt.Sprintf("%s:%d", s.path, s.lines.Line(s.index, field))
}

// reader collects the policies of files, and all mistakes.
type reader struct {
	set     policy.Set
	sources map[string]source // by the name of the policy
	files   int
	bytes   int64
	skipped []string // that may hold policies in another format

	overrides   service.OverrideSet
	overridesIn map[string]string // the files of the overrides, by policy
	errs        []error
}

// read returns the policies of files and directories. Its error joins a mistake a line.
func read(paths []string) (*reader, error) {
	r := &reader{sources: map[string]source{}, overridesIn: map[string]string{}}
	for _, path := range paths {
		r.errs = append(r.errs, r.path(path))
	}

	if err := errors.Join(r.errs...); err != nil {
		return r, err
	}

	if r.files == 0 {
		return r, fmt.Errorf("there is no .yaml, .yml or overrides.json file in %s", strings.Join(paths, ", "))
	}

	slices.SortFunc(r.set, func(a, b policy.Policy) int { return cmp.Compare(a.Name, b.Name) })
	return r, nil
}

// path reads a file, or the files of a directory and its folders, in the order of their
// names. It leaves out names that begin with a dot, such as .git and .github.
func (r *reader) path(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return r.file(path)
	}

	// An error of one entry is collected, and the walk goes on to find the others.
	return filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(d.Name(), ".") && name != path
		switch {
		case err != nil:
			r.errs = append(r.errs, err)
			return nil
		case d.IsDir() && hidden:
			return fs.SkipDir
		case d.IsDir() || hidden:
			return nil
		// WalkDir does not follow links: the policies behind this one would be missed in silence.
		case d.Type()&fs.ModeSymlink != 0 && isDirectory(name):
			r.errs = append(r.errs, fmt.Errorf("%s is a link to a directory; name that by -f", name))
			return nil
		}

		// Another format is not read, but it may be meant to be: the caller says so.
		switch ext := strings.ToLower(filepath.Ext(name)); {
		case ext == ".json" && !hasOverrides(name):
			r.skipped = append(r.skipped, name)
		case ext == ".yaml", ext == ".yml", ext == ".json":
			return r.file(name)
		}
		return nil
	})
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// file reads a file. It collects the mistakes in it, and returns an error that ends the reading.
func (r *reader) file(path string) error {
	if r.files++; r.files > maxFiles {
		return fmt.Errorf("there are more than %d files", maxFiles)
	}

	most := int64(policyyaml.MaxBytes)
	if hasOverrides(path) {
		most = service.MaxOverridesFile
	}
	data, err := readFile(path, most)
	if err != nil {
		r.errs = append(r.errs, err)
		return nil
	}

	// The bounds are of all files together, and end the reading.
	if r.bytes += int64(len(data)); r.bytes > maxBytes {
		return fmt.Errorf("the files have more than %d bytes", maxBytes)
	}

	if hasOverrides(path) {
		r.addOverrides(path, data)
		return nil
	}
	set, lines, err := policyyaml.DecodeLines(data)
	r.addFileErrors(path, err)

	// Names are unique among all files, as they are in the console. The policies of a file with
	// mistakes count too.
	for i, name := range lines.Names() {
		here := source{path, lines, i}
		first, exists := r.sources[name]
		switch {
		case name == "":
			continue
		case exists && first.path != path: // in one file it is a mistake already
			r.errs = append(r.errs, fmt.Errorf("%s: policy %q: name: the policy of %s has the same name",
				here.placeOf("name"), name, first.placeOf("name")))
		case !exists:
			r.sources[name] = here
		}
	}

	r.set = append(r.set, set...)
	return nil
}

// readFile reads at most one byte more than a file may have.
func readFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path) // to open a pipe would not end
	}

	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most+1))
}

// addFileErrors adds the mistakes of a file, each with its line where it has one.
func (r *reader) addFileErrors(path string, err error) {
	if err == nil {
		return
	}

	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		var line *policyyaml.LineError
		if errors.As(e, &line) {
			e = fmt.Errorf("%s:%d: %w", path, line.Line, line.Err)
		}
		r.errs = append(r.errs, e)
	}
}

// appsOf returns the applications that the policies list.
func appsOf(set policy.Set) []string {
	var apps []string
	for i := range set {
		apps = append(apps, set[i].Apps...)
	}
	slices.Sort(apps)
	return slices.Compact(apps)
}
