// Program vetall runs the checks of go vet on the packages of the current folder, tests
// included, for each of the machines that its arguments name as GOOS/GOARCH. It reads
// the types of all dependencies from their source. go vet itself compiles them for
// every machine, which takes several times as long from an empty cache.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/passes/appends"
	"golang.org/x/tools/go/analysis/passes/asmdecl"
	"golang.org/x/tools/go/analysis/passes/assign"
	"golang.org/x/tools/go/analysis/passes/atomic"
	"golang.org/x/tools/go/analysis/passes/bools"
	"golang.org/x/tools/go/analysis/passes/buildtag"
	"golang.org/x/tools/go/analysis/passes/composite"
	"golang.org/x/tools/go/analysis/passes/copylock"
	"golang.org/x/tools/go/analysis/passes/defers"
	"golang.org/x/tools/go/analysis/passes/directive"
	"golang.org/x/tools/go/analysis/passes/errorsas"
	"golang.org/x/tools/go/analysis/passes/framepointer"
	"golang.org/x/tools/go/analysis/passes/hostport"
	"golang.org/x/tools/go/analysis/passes/httpresponse"
	"golang.org/x/tools/go/analysis/passes/ifaceassert"
	"golang.org/x/tools/go/analysis/passes/loopclosure"
	"golang.org/x/tools/go/analysis/passes/lostcancel"
	"golang.org/x/tools/go/analysis/passes/nilfunc"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/passes/shift"
	"golang.org/x/tools/go/analysis/passes/sigchanyzer"
	"golang.org/x/tools/go/analysis/passes/slog"
	"golang.org/x/tools/go/analysis/passes/stdmethods"
	"golang.org/x/tools/go/analysis/passes/stdversion"
	"golang.org/x/tools/go/analysis/passes/stringintconv"
	"golang.org/x/tools/go/analysis/passes/structtag"
	"golang.org/x/tools/go/analysis/passes/testinggoroutine"
	"golang.org/x/tools/go/analysis/passes/tests"
	"golang.org/x/tools/go/analysis/passes/timeformat"
	"golang.org/x/tools/go/analysis/passes/unmarshal"
	"golang.org/x/tools/go/analysis/passes/unreachable"
	"golang.org/x/tools/go/analysis/passes/unsafeptr"
	"golang.org/x/tools/go/analysis/passes/unusedresult"
	"golang.org/x/tools/go/analysis/passes/waitgroup"
	"golang.org/x/tools/go/packages"
)

// checks are those of go vet, without cgocall, as no package uses cgo.
var checks = []*analysis.Analyzer{
	appends.Analyzer, asmdecl.Analyzer, assign.Analyzer, atomic.Analyzer, bools.Analyzer,
	buildtag.Analyzer, composite.Analyzer, copylock.Analyzer, defers.Analyzer,
	directive.Analyzer, errorsas.Analyzer, framepointer.Analyzer, hostport.Analyzer,
	httpresponse.Analyzer, ifaceassert.Analyzer, loopclosure.Analyzer, lostcancel.Analyzer,
	nilfunc.Analyzer, printf.Analyzer, shift.Analyzer, sigchanyzer.Analyzer, slog.Analyzer,
	stdmethods.Analyzer, stdversion.Analyzer, stringintconv.Analyzer, structtag.Analyzer,
	testinggoroutine.Analyzer, tests.Analyzer, timeformat.Analyzer, unmarshal.Analyzer,
	unreachable.Analyzer, unsafeptr.Analyzer, unusedresult.Analyzer, waitgroup.Analyzer,
}

func main() {
	debug.SetGCPercent(400)
	folder, err := os.Getwd()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	v := vet{within: folder + string(filepath.Separator), fset: token.NewFileSet(), files: map[string]*file{}}
	failed := len(os.Args) == 1
	for _, machine := range os.Args[1:] {
		for _, finding := range v.check(machine) {
			fmt.Printf("%s: %s\n", machine, finding)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// A vet checks the packages of a folder on one machine after the other. It parses each
// file once.
type vet struct {
	within string // the folder, with a separator at the end
	fset   *token.FileSet
	mu     sync.Mutex
	files  map[string]*file
}

// A file is what parsing it gave.
type file struct {
	once sync.Once
	tree *ast.File
	err  error
}

// parse returns a file's syntax, for a file of a dependency without the bodies of its
// functions: what they declare suffices to check those who call them.
func (v *vet) parse(fset *token.FileSet, name string, text []byte) (*ast.File, error) {
	v.mu.Lock()
	f := v.files[name]
	if f == nil {
		f = new(file)
		v.files[name] = f
	}
	v.mu.Unlock()
	f.once.Do(func() {
		if strings.HasPrefix(name, v.within) {
			f.tree, f.err = parser.ParseFile(fset, name, text, parser.ParseComments|parser.AllErrors)
			return
		}
		f.tree, f.err = parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if f.err != nil {
			return
		}
		for _, d := range f.tree.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				d.Body = nil
			}
		}
	})
	return f.tree, f.err
}

// check returns what is wrong with the packages on a machine.
func (v *vet) check(machine string) (findings []string) {
	system, arch, _ := strings.Cut(machine, "/")
	all, err := packages.Load(&packages.Config{
		Mode:      packages.LoadAllSyntax | packages.NeedModule,
		Tests:     true,
		Fset:      v.fset,
		ParseFile: v.parse,
		Env:       append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch),
	}, "./...")
	if err != nil {
		return []string{err.Error()}
	}
	all = slices.DeleteFunc(all, func(p *packages.Package) bool {
		return strings.HasSuffix(p.ID, ".test") // a test's main function, which is made
	})
	own := map[string]bool{}
	for _, p := range all {
		own[p.ID] = true
	}
	packages.Visit(all, nil, func(p *packages.Package) {
		// A dependency lacks bodies, and so has imports that nothing uses.
		p.IllTyped = false
		if !own[p.ID] {
			return
		}
		for _, err := range p.Errors {
			findings = append(findings, err.Error())
		}
	})
	if len(findings) > 0 {
		return findings
	}
	graph, err := checker.Analyze(checks, all, nil)
	if err != nil {
		return []string{err.Error()}
	}
	for action := range graph.All() {
		if !action.IsRoot {
			continue
		}
		if action.Err != nil {
			findings = append(findings, action.Err.Error())
		}
		for _, d := range action.Diagnostics {
			findings = append(findings, fmt.Sprint(action.Package.Fset.Position(d.Pos), ": ", d.Message))
		}
	}
	return findings
}
