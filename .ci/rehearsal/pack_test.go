package main

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const version = "v0.1.0"

// repository makes a repository of the files, given as name and text, and returns
// its modules.
func repository(t *testing.T, files map[string]string) []*mod {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}} {
		if out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
	modules, err := find(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return modules
}

// packed returns the names of the files in the zip of a module.
func packed(t *testing.T, proxy, module string) []string {
	t.Helper()
	r, err := zip.OpenReader(filepath.Join(proxy, filepath.FromSlash(module), "@v", version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var names []string
	for _, f := range r.File {
		names = append(names, strings.TrimPrefix(f.Name, module+"@"+version+"/"))
	}
	slices.Sort(names)
	return names
}

func TestPackedModuleHoldsItsOwnFiles(t *testing.T) {
	modules := repository(t, map[string]string{
		"LICENSE": "do", "go.mod": "module " + root + "\n", "a/a.go": "package a\n",
		"console/go.mod":      "module " + root + "/console\n\nrequire " + root + " v0.1.0\n",
		"console/sub/main.go": "package main\n", ".tool/go.mod": "module tool\n", ".tool/main.go": "package main\n",
	})
	proxy := t.TempDir()
	for _, m := range modules {
		if err := m.pack(proxy, version, modules); err != nil {
			t.Fatal(err)
		}
	}
	for module, want := range map[string][]string{
		root:              {"LICENSE", "a/a.go", "go.mod"},
		root + "/console": {"LICENSE", "go.mod", "sub/main.go"},
	} {
		if got := packed(t, proxy, module); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", module, got, want)
		}
	}
	if len(modules) != 2 {
		t.Errorf("%d modules, want 2", len(modules))
	}
}

func TestPackedModuleRequiresTheOthersAtItsVersion(t *testing.T) {
	modules := repository(t, map[string]string{
		"go.mod": "module " + root + "\n", "LICENSE": "do",
		"console/go.mod": "module " + root + "/console\n\nrequire " + root + " v0.0.9\n",
	})
	got, err := modules[1].release(version, modules)
	if want := "module " + root + "/console\n\nrequire " + root + " v0.1.0\n"; string(got) != want || err != nil {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestModuleThatCannotBeInstalledIsRefused(t *testing.T) {
	for line, want := range map[string]string{
		"replace " + root + " => ..":                              "it replaces " + root,
		"exclude example.com/a v1.0.0":                            "it excludes example.com/a",
		"require " + root + " v0.0.0":                             "it requires " + root + "@v0.0.0, which is no release",
		"require " + root + " v0.0.0-00010101000000-000000000000": "it requires " + root + "@v0.0.0-00010101000000-000000000000, which is no release",
	} {
		modules := repository(t, map[string]string{
			"go.mod": "module " + root + "\n", "console/go.mod": "module " + root + "/console\n\n" + line + "\n",
		})
		if _, err := modules[1].release(version, modules); err == nil || !strings.Contains(err.Error(), "console/go.mod: "+want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

func TestTagsFollowThoseThatTheyRequire(t *testing.T) {
	modules := repository(t, map[string]string{
		"go.mod":                 "module " + root + "\n",
		"internal/test/go.mod":   "module " + root + "/internal/test\n\nrequire " + root + " v0.1.0\n",
		"adapters/b/go.mod":      "module " + root + "/adapters/b\n\nrequire " + root + " v0.1.0\n",
		"adapters/a/go.mod":      "module " + root + "/adapters/a\n\nrequire " + root + " v0.1.0\n",
		"cmd/gateway/go.mod":     "module " + root + "/cmd/gateway\n\nrequire " + root + "/adapters/a v0.1.0\n",
		"tools/unrelated/go.mod": "module unrelated\n",
	})
	want := [][]string{{version}, {"adapters/a/" + version, "adapters/b/" + version}, {"cmd/gateway/" + version}}
	if got, err := tags(modules, version); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}

	circle := repository(t, map[string]string{
		"go.mod":   "module " + root + "\n\nrequire " + root + "/a v0.1.0\n",
		"a/go.mod": "module " + root + "/a\n\nrequire " + root + " v0.1.0\n",
	})
	if got, err := tags(circle, version); err == nil {
		t.Errorf("modules that require each other have the tags %q", got)
	}
}

func TestFirstProgramServesOnPort8080(t *testing.T) {
	const program = "package main\n\nimport _ \"" + root + "/nethttp\"\n\nconst at = \":8080\"\n"
	for page, want := range map[string]string{
		"# A\n\n```go\nx := 1\n```\n\n```go\n" + program + "```\n": "",
		"# A\n":                         "there is no Go program",
		"```go\npackage main\n```\n":    "the first program does not serve on port 8080 through nethttp",
		"```sh\n" + program + "\n```\n": "there is no Go program",
	} {
		name := filepath.Join(t.TempDir(), "README.md")
		if err := os.WriteFile(name, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := firstProgram(name)
		if want == "" && (got != program || err != nil) {
			t.Errorf("%q, %v; want %q", got, err, program)
		}
		if want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", page, err, want)
		}
	}
}
