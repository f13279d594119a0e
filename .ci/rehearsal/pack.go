package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// mod is a module of the repository.
type mod struct {
	path  string
	gomod *modfile.File
	files []zip.File // all but go.mod
}

// find returns the modules in the repository at dir, with the files that git
// tracks. Modules under other paths than the root's are no part of a release.
func find(ctx context.Context, dir string) ([]*mod, error) {
	out, err := exec.CommandContext(ctx, "git", "-C", dir, "ls-files", "-z").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	folders := map[string]*mod{} // by the folder of go.mod, with a slash at the end
	for _, name := range names {
		if path.Base(name) != "go.mod" {
			continue
		}
		m, err := readMod(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		folders[strings.TrimSuffix(name, "go.mod")] = m
	}
	for _, name := range names {
		folder := holder(name, folders)
		if m := folders[folder]; m != nil && path.Base(name) != "go.mod" {
			m.files = append(m.files, file{filepath.Join(dir, name), strings.TrimPrefix(name, folder)})
		}
	}
	var list []*mod
	for _, m := range folders {
		if m.path == root || strings.HasPrefix(m.path, root+"/") {
			m.license(filepath.Join(dir, "LICENSE"))
			list = append(list, m)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no module under %s in %s", root, dir)
	}
	slices.SortFunc(list, func(a, b *mod) int { return strings.Compare(a.path, b.path) })
	return list, nil
}

// holder returns the innermost of the folders that holds the file.
func holder(name string, folders map[string]*mod) string {
	for {
		name = name[:strings.LastIndexByte(name, '/')+1]
		if _, ok := folders[name]; ok || name == "" {
			return name
		}
		name = strings.TrimSuffix(name, "/")
	}
}

func readMod(name string) (*mod, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f, err := modfile.Parse(name, data, nil)
	if err != nil {
		return nil, err
	}
	return &mod{path: f.Module.Mod.Path, gomod: f}, nil
}

// license adds the license of the repository if the module has none of its own, as
// the go command does.
func (m *mod) license(name string) {
	if !slices.ContainsFunc(m.files, func(f zip.File) bool { return f.Path() == "LICENSE" }) {
		m.files = append(m.files, file{name, "LICENSE"})
	}
}

// pack writes the module into the proxy. It requires the other modules of the
// repository at the same version.
func (m *mod) pack(proxy, version string, all []*mod) error {
	gomod, err := m.release(version, all)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	files := append([]zip.File{text{"go.mod", gomod}}, m.files...)
	if err := zip.Create(&b, module.Version{Path: m.path, Version: version}, files); err != nil {
		return fmt.Errorf("%s: %w", m.path, err)
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Now().UTC()})
	if err != nil {
		return err
	}
	folder := filepath.Join(proxy, filepath.FromSlash(m.path), "@v")
	return errors.Join(os.MkdirAll(folder, 0o755),
		os.WriteFile(filepath.Join(folder, "list"), []byte(version+"\n"), 0o644),
		os.WriteFile(filepath.Join(folder, version+".info"), info, 0o644),
		os.WriteFile(filepath.Join(folder, version+".mod"), gomod, 0o644),
		os.WriteFile(filepath.Join(folder, version+".zip"), b.Bytes(), 0o644))
}

// release returns the text of go.mod, or an error if users could not install a
// module that has it.
func (m *mod) release(version string, all []*mod) ([]byte, error) {
	name := m.gomod.Syntax.Name
	if len(m.gomod.Replace) > 0 {
		return nil, fmt.Errorf("%s: it replaces %s: go install refuses a module that does", name, m.gomod.Replace[0].Old.Path)
	}
	if len(m.gomod.Exclude) > 0 {
		return nil, fmt.Errorf("%s: it excludes %s: go install refuses a module that does", name, m.gomod.Exclude[0].Mod.Path)
	}
	for _, r := range slices.Clone(m.gomod.Require) {
		if !slices.ContainsFunc(all, func(o *mod) bool { return o.path == r.Mod.Path }) {
			continue
		}
		if module.IsPseudoVersion(r.Mod.Version) || r.Mod.Version == "v0.0.0" {
			return nil, fmt.Errorf("%s: it requires %s, which is no release", name, r.Mod)
		}
		if err := m.gomod.AddRequire(r.Mod.Path, version); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return m.gomod.Format()
}

// file is a file on disk that is packed under the name inside.
type file struct{ name, inside string }

func (f file) Path() string                 { return f.inside }
func (f file) Lstat() (fs.FileInfo, error)  { return os.Lstat(f.name) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.name) }

// text is a file in memory.
type text struct {
	inside string
	data   []byte
}

func (t text) Path() string                 { return t.inside }
func (t text) Lstat() (fs.FileInfo, error)  { return t, nil }
func (t text) Open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(t.data)), nil }

func (t text) Name() string       { return path.Base(t.inside) }
func (t text) Size() int64        { return int64(len(t.data)) }
func (t text) Mode() fs.FileMode  { return 0o644 }
func (t text) ModTime() time.Time { return time.Time{} }
func (t text) IsDir() bool        { return false }
func (t text) Sys() any           { return nil }
