// Package layers holds the rules of the folders and the order of the packages: which of them
// a package may import, here and elsewhere.
//
//	the root       has the limiter and what the root module needs
//	adapters       bring a dependency of their own, and so are modules of their own
//	observe        is told, never asked
//	cmd            has mains
//	internal/test  is imported by tests alone
//
// TestFigures counts how much there is to hold in one hand.
package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/headgate/headgate"
	root   = "../../.."
)

// order lists, for each package of the module and of the modules in adapters and observe, the
// imports that its files other than tests may have besides the standard library: packages of
// the repository by their folder, others by their path. A "*" stands for any one element. A
// package that is not listed fails the test.
var order = map[string][]string{
	"core":             {"internal/textform"},
	"lua":              {"core"},
	"keyfuncs":         {"core", "internal/textform"},
	"llmusage":         {},
	"observe/events":   {"core", "internal/textform"},
	"observe/eventlog": {"core", "observe/events", "internal/quietlog"},
	"observe/findings": {"core"},
	"limiter": {"core", "llmusage", "observe/events", "observe/findings", "keyfuncs", "observe/topkeys",
		"store/memstore", "internal/telling", "internal/textform", "internal/waitline"},
	"observe/topkeys": {},
	"nethttp": {"core", "limiter", "observe/findings", "internal/exchange", "internal/httpexchange", "internal/setup",
		"internal/target"},
	"transport": {"core", "limiter", "internal/textform", "llmusage"},
	"ginmw": {"core", "limiter", "llmusage", "observe/findings", "internal/exchange", "internal/httpexchange",
		"internal/setup", "internal/target", "github.com/gin-gonic/gin"},
	"echomw": {"core", "limiter", "internal/exchange", "internal/httpexchange", "internal/setup",
		"internal/target", "github.com/labstack/echo/v4"},
	"fibermw": {"core", "limiter", "internal/exchange", "internal/fasthttpexchange", "internal/setup",
		"github.com/gofiber/fiber/v2"},
	"adapters/echov5mw": {"core", "limiter", "internal/exchange", "internal/httpexchange",
		"internal/setup", "internal/target", "github.com/labstack/echo/v5"},
	"adapters/fiberv3mw": {"core", "limiter", "internal/exchange", "internal/fasthttpexchange",
		"internal/setup", "github.com/gofiber/fiber/v3", "github.com/valyala/fasthttp"},
	"adapters/grpcmw": {"core", "limiter", "internal/setup", "internal/rpc", "google.golang.org/grpc",
		"google.golang.org/grpc/codes", "google.golang.org/grpc/credentials",
		"google.golang.org/grpc/metadata", "google.golang.org/grpc/peer", "google.golang.org/grpc/status",
		"google.golang.org/genproto/googleapis/rpc/errdetails", "google.golang.org/protobuf/protoadapt",
		"google.golang.org/protobuf/types/known/durationpb"},
	"adapters/connectmw": {"core", "limiter", "internal/setup", "internal/rpc", "connectrpc.com/connect",
		"google.golang.org/genproto/googleapis/rpc/errdetails", "google.golang.org/protobuf/proto",
		"google.golang.org/protobuf/types/known/durationpb"},
	"adapters/mcpmw": {"core", "keyfuncs", "limiter", "internal/setup", "internal/rpc",
		"github.com/modelcontextprotocol/go-sdk/auth", "github.com/modelcontextprotocol/go-sdk/jsonrpc",
		"github.com/modelcontextprotocol/go-sdk/mcp"},
	"adapters/caddymw": {"core", "keyfuncs", "limiter", "observe/findings", "policy",
		"policy/filesource", "policy/managed",
		"store/failover", "store/memstore", "store/redisstore",
		"internal/findinglog", "internal/httpexchange", "internal/redisurl", "internal/upgrades", "llmusage", "github.com/redis/go-redis/v9",
		"github.com/caddyserver/caddy/v2", "github.com/caddyserver/caddy/v2/*",
		"github.com/caddyserver/caddy/v2/*/*"},
	"store/redisstore/rueidis": {"store/redisstore", "github.com/redis/go-redis/v9", "github.com/redis/rueidis"},
	"store/*": {"core", "observe/events", "lua", "internal/rediscall", "internal/textform",
		"github.com/redis/go-redis/v9"},
	"policy": {"core", "observe/events", "observe/findings", "keyfuncs", "limiter", "llmusage",
		"internal/explain", "internal/strictjson", "internal/textform"},
	"policy/*": {"core", "observe/events", "limiter", "policy", "policy/policyyaml",
		"policy/internal/*", "internal/rediscall", "internal/textform", "github.com/redis/go-redis/v9"},
	"observe/debug": {"core", "observe/events", "limiter", "policy", "observe/topkeys"},

	"observe/internal/meter": {"observe/events", "limiter"},
	"observe/prom": {"core", "observe/events", "limiter", "observe/internal/meter",
		"github.com/prometheus/client_golang/prometheus"},
	"observe/otel": {"core", "observe/events", "limiter", "observe/internal/meter",
		"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/attribute",
		"go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/trace"},

	"policy/internal/*": {"github.com/redis/go-redis/v9"},

	"internal/telling": {"core", "keyfuncs", "observe/events", "observe/findings", "observe/topkeys",
		"internal/quietlog", "internal/textform"},
	"internal/drawing":    {"core"},
	"internal/explain":    {"core", "internal/drawing", "internal/textform"},
	"internal/playground": {"core", "internal/drawing", "internal/explain", "internal/textform"},

	"docs/site/playground":      {"internal/playground"},
	"docs/site/playground/wasm": {"internal/playground"},

	"internal/accesslog": {},
	"internal/replay": {"core", "observe/events", "keyfuncs", "limiter", "policy", "store/memstore",
		"internal/accesslog", "internal/textform"},

	"cmd/headgate": {"core", "keyfuncs", "limiter", "observe/events", "observe/topkeys", "policy",
		"policy/policyyaml", "policy/redissource", "policy/stats", "store/redisstore", "internal/accesslog",
		"internal/replay", "internal/drawing", "internal/explain", "internal/rediscall", "internal/redisurl",
		"internal/textform", "github.com/redis/go-redis/v9"},
	"internal/textform":         {},
	"internal/quietlog":         {},
	"internal/strictjson":       {},
	"internal/waitline":         {"core"},
	"internal/rpc":              {"core", "limiter"},
	"internal/exchange":         {"limiter"},
	"internal/httpexchange":     {"limiter", "llmusage"},
	"internal/fasthttpexchange": {"limiter", "llmusage", "internal/target", "github.com/valyala/fasthttp"},
	"internal/setup":            {"limiter"},
	"internal/target":           {},
	"internal/rediscall":        {"github.com/redis/go-redis/v9"},
	"internal/redisurl":         {"github.com/redis/go-redis/v9"},
}

// exceptions lists packages for which the pattern above does not hold.
var exceptions = map[string][]string{
	"store/memstore": {"core", "observe/events", "internal/textform"},
	"store/redisstore": {"core", "observe/events", "observe/findings", "lua", "store/failover", "store/memstore",
		"internal/rediscall", "internal/textform",
		"github.com/redis/go-redis/v9"},
	"store/prefetch":  {"core", "observe/events", "internal/textform"},
	"store/storetest": {"core", "lua", "pgregory.net/rapid"},

	"policy/managed": {"observe/events", "limiter", "policy", "policy/redissource", "policy/stats",
		"store/failover", "store/memstore",
		"store/redisstore", "github.com/redis/go-redis/v9"},
	"policy/stats": {"core", "observe/events", "limiter", "policy", "policy/internal/*",
		"observe/topkeys", "internal/rediscall", "internal/textform", "github.com/redis/go-redis/v9"},
	"policy/policyyaml": {"policy", "internal/textform", "github.com/goccy/go-yaml",
		"github.com/goccy/go-yaml/*"},
}

// free are the folders whose packages only tests or readers use, as are the examples of
// an adapter. They may import anything, and no package of the order may import them.
var free = []string{"internal", "examples"}

// The root has the limiter, in reading order, and what the root module needs.
func TestRoot(t *testing.T) {
	want := strings.Fields("core lua keyfuncs store limiter nethttp ginmw echomw fibermw policy observe " +
		"adapters transport llmusage cmd bench docs examples internal")
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}

	// Folders with a dot belong to tools.
	var got []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			got = append(got, e.Name())
		}
	}

	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the folders of the root are %q, want %q", got, want)
	}
}

// Adapters are modules, and a cmd is a main.
func TestAdaptersAreModulesAndCommandsMains(t *testing.T) {
	for _, dir := range folders(t, "adapters") {
		if !isModule(dir) {
			t.Errorf("%s is no module of its own: an adapter without a dependency of its own belongs to the root", dir)
		}
	}
	for _, dir := range folders(t, "cmd") {
		text, err := os.ReadFile(filepath.Join(dir, "main.go"))
		if err != nil || !strings.Contains(string(text), "\npackage main\n") {
			t.Errorf("%s has no main: %v", dir, err)
		}
	}
}

// folders returns the folders in one of the root.
func folders(t *testing.T, in string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, in))
	if err != nil || len(entries) == 0 {
		t.Fatalf("%s: %d entries, %v", in, len(entries), err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, filepath.Join(root, in, e.Name()))
	}
	return list
}

// What only tests need is in internal/test, or in a package whose name ends in test. Only such
// packages and tests import it, in every module.
func TestTestsAloneImportWhatIsForThem(t *testing.T) {
	// The name alone decides, so that a reader knows it from the import.
	forTests := func(dir string) bool {
		return dir == "internal/test" || strings.HasPrefix(dir, "internal/test/") || strings.HasSuffix(dir, "test")
	}

	imports := 0
	walkAll(t, func(dir, file string, f *ast.File) {
		for _, spec := range f.Imports {
			to := target(t, spec)

			// The first part of a foreign path has a dot, as ours have none.
			if !forTests(to) || strings.Contains(strings.SplitN(to, "/", 2)[0], ".") {
				continue
			}
			imports++
			if !forTests(dir) {
				t.Errorf("%s imports %s, which is for tests", file, to)
			}
		}
	})

	// None at all would mean that the imports were not read.
	if imports == 0 {
		t.Error("nothing imports a package for tests")
	}
}

// Imports stand in groups: the standard library, others, ours.
func TestImportGroups(t *testing.T) {
	const standard, others, ours = 0, 1, 2
	group := func(spec *ast.ImportSpec) int {
		switch name, _ := strconv.Unquote(spec.Path.Value); {
		case name == module || strings.HasPrefix(name, module+"/"):
			return ours
		case strings.Contains(strings.SplitN(name, "/", 2)[0], "."):
			return others
		}
		return standard
	}

	walkFiles(t, func(string) bool { return false }, withTests, func(_, file string, f *ast.File) {
		// Imports stand in the order of the file, so each is compared with the one before.
		for i := 1; i < len(f.Imports); i++ {
			before, spec := f.Imports[i-1], f.Imports[i]
			last := fset.Position(before.End()).Line
			first := fset.Position(spec.Pos()).Line

			// A comment above an import belongs to it, and may stand right below the group before.
			if spec.Doc != nil {
				first = fset.Position(spec.Doc.Pos()).Line
			}

			switch apart := first > last+1; {
			case group(before) > group(spec):
				t.Errorf("%s imports %s after %s", file, spec.Path.Value, before.Path.Value)
			case group(before) != group(spec) && !apart:
				t.Errorf("%s has no blank line before the import of %s", file, spec.Path.Value)
			}
		}
	})
}

func TestImports(t *testing.T) {
	seen := map[string]bool{}
	walk(t, func(dir, file string, f *ast.File) {
		// A package without a place fails once, and not for each of its files.
		may, listed := allowed(dir)
		if !listed {
			if !isFree(dir) && !seen[dir] {
				t.Errorf("%s has no place in the order of packages", dir)
			}
			seen[dir] = true
			return
		}

		for _, spec := range f.Imports {
			to := target(t, spec)

			if to != "" && !slices.ContainsFunc(may, func(p string) bool { return matches(p, to) }) {
				t.Errorf("%s imports %s, which is not below %s", file, to, dir)
			}
		}
	})
}

// core must not depend on anything that differs from call to call or from machine to
// machine, because its twins in Lua cannot.
func TestCoreIsPure(t *testing.T) {
	packages := []string{"sync", "sync/atomic", "log", "log/slog", "os", "os/*", "net", "net/*", "runtime",
		"runtime/*", "math/rand", "math/rand/*", "crypto/*", "unsafe"}
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
	files := 0

	walk(t, func(dir, file string, f *ast.File) {
		if dir != "core" && dir != "internal/textform" {
			return
		}

		files++
		for _, spec := range f.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if slices.ContainsFunc(packages, func(p string) bool { return matches(p, name) }) {
				t.Errorf("%s imports %s", file, name)
			}
		}

		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", file)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					t.Errorf("%s uses time.%s", file, n.Sel.Name)
				}
			}
			return true
		})
	})
	if files == 0 {
		t.Error("core has no files")
	}
}

// A program that imports html/template keeps all of its methods, because templates call them
// by name. So only the page that a program may leave out imports it.
func TestTemplatesAreOfTheDebugPage(t *testing.T) {
	walk(t, func(dir, file string, f *ast.File) {
		for _, spec := range f.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			is := name == "html/template" || name == "text/template"
			if is && dir != "observe/debug" && !isFree(dir) {
				t.Errorf("%s imports %s", file, name)
			}
		}
	})
}

func exported(f *ast.File) (names []string) {
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}

	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add(spec.Name)
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						add(id)
					}
				}
			}
		}
	}
	return names
}

// walk calls f for every Go file that is no test, in the module and in the modules of adapters
// and observe.
func walk(t *testing.T, f func(dir, file string, syntax *ast.File)) {
	t.Helper()
	walkFiles(t, func(folder string) bool { return isModule(folder) && !inOrder(folder) }, withoutTests, f)
}

// walkAll is walk in all modules.
func walkAll(t *testing.T, f func(dir, file string, syntax *ast.File)) {
	t.Helper()
	walkFiles(t, func(string) bool { return false }, withoutTests, f)
}

// Whether a walk is over the files of tests too.
const (
	withoutTests = false
	withTests    = true
)

// fset has the positions in all files that a walk has parsed.
var fset = token.NewFileSet()

// walkFiles calls f for every Go file outside of the folders to be skipped.
func walkFiles(t *testing.T, skip func(folder string) bool, tests bool, f func(dir, file string, syntax *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			name := e.Name()
			skipped := skip(file) || name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".")
			if file != root && skipped {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || !tests && strings.HasSuffix(file, "_test.go") {
			return nil
		}

		syntax, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}

		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)

		f(path.Dir(name), name, syntax)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inOrder reports whether the packages of a module in the folder have a place in the order.
func inOrder(dir string) bool {
	parent := path.Base(filepath.ToSlash(filepath.Dir(dir)))
	return parent == "adapters" || parent == "observe"
}

// isModule reports whether the folder is a module of its own.
func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// target returns the target of an import: a folder of the module, the path of another
// module's package, or "" for the standard library.
func target(t *testing.T, spec *ast.ImportSpec) string {
	t.Helper()
	name, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		t.Fatal(err)
	}
	if dir, ok := strings.CutPrefix(name, module+"/"); ok {
		return dir
	}
	if first, _, _ := strings.Cut(name, "/"); strings.Contains(first, ".") {
		return name
	}
	return ""
}

func allowed(dir string) (may []string, listed bool) {
	if may, ok := exceptions[dir]; ok {
		return may, true
	}
	for pattern, may := range order {
		if matches(pattern, dir) {
			return may, true
		}
	}
	return nil, false
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

func isFree(dir string) bool {
	top, rest, _ := strings.Cut(dir, "/")
	_, inAdapter, _ := strings.Cut(rest, "/")
	return slices.Contains(free, top) || top == "adapters" && strings.HasPrefix(inAdapter, "examples/")
}
