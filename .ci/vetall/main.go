// Program vetall checks the packages of the current folder, tests included: with
// staticcheck on the first of the machines that its arguments name as GOOS/GOARCH, and
// with the checks of go vet on each. It reads what dependencies declare from their
// source, without the bodies of their functions, and does not check them, so it does not
// find an ignored result of a pure function (SA4017). go vet compiles dependencies for
// every machine, and staticcheck examines them too, which takes several times as long from
// an empty cache.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
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
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/defers"
	"golang.org/x/tools/go/analysis/passes/directive"
	"golang.org/x/tools/go/analysis/passes/errorsas"
	"golang.org/x/tools/go/analysis/passes/framepointer"
	"golang.org/x/tools/go/analysis/passes/hostport"
	"golang.org/x/tools/go/analysis/passes/httpresponse"
	"golang.org/x/tools/go/analysis/passes/ifaceassert"
	"golang.org/x/tools/go/analysis/passes/inspect"
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
	"honnef.co/go/tools/analysis/facts/deprecated"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

// vetChecks are those of go vet, without cgocall, as no package uses cgo.
var vetChecks = []*analysis.Analyzer{
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
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(3 << 30) // below which nothing is collected
	folder, err := os.Getwd()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	v := vet{within: folder + string(filepath.Separator), fset: token.NewFileSet(), files: map[string]*file{}}
	failed := len(os.Args) == 1
	checks := slices.Concat(vetChecks, staticChecks())
	v.spareDependencies(checks, map[*analysis.Analyzer]bool{})
	for _, machine := range os.Args[1:] {
		findings := v.check(machine, checks)
		checks = vetChecks
		for _, finding := range findings {
			fmt.Printf("%s: %s\n", machine, finding)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// staticChecks are the checks that staticcheck makes by default.
func staticChecks() (list []*analysis.Analyzer) {
	all := slices.Concat(simple.Analyzers, staticcheck.Analyzers, stylecheck.Analyzers, []*lint.Analyzer{unused.Analyzer})
	for _, a := range all {
		if !a.Doc.NonDefault {
			list = append(list, a.Analyzer)
		}
	}
	return list
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
// functions: what they declare suffices to check their callers.
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
		f.tree, f.err = parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if f.err != nil {
			return
		}
		strip(f.tree)
	})
	return f.tree, f.err
}

// strip removes the bodies of functions, and the elements of composite literals, some of
// which are large tables, unless the type of the literal depends on their number.
func strip(f *ast.File) {
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok {
			d.Body = nil
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if c, ok := n.(*ast.CompositeLit); ok && !counts(c.Type) {
			c.Elts = nil
		}
		return true
	})
}

// counts reports whether the elements of a literal of this type, which is nil inside of
// another literal, are counted for the length of an array.
func counts(t ast.Expr) bool {
	array, ok := t.(*ast.ArrayType)
	if !ok {
		return false
	}
	_, counted := array.Len.(*ast.Ellipsis)
	return counted
}

// spareDependencies has the checks, and the analyzers that they require, skip packages
// outside of the folder. Two of them find facts there that checks of the folder need and
// that do not follow from the bodies of functions: which names are deprecated, and which
// functions of the standard library never return.
func (v *vet) spareDependencies(checks []*analysis.Analyzer, seen map[*analysis.Analyzer]bool) {
	for _, a := range checks {
		if seen[a] || a == deprecated.Analyzer || a == ctrlflow.Analyzer {
			continue
		}
		seen[a] = true
		v.spareDependencies(a.Requires, seen)
		if a == inspect.Analyzer { // which both require
			continue
		}
		run := a.Run
		a.Run = func(pass *analysis.Pass) (any, error) {
			if len(pass.Files) > 0 && strings.HasPrefix(v.fset.Position(pass.Files[0].Package).Filename, v.within) {
				return run(pass)
			}
			if a.ResultType == nil {
				return nil, nil
			}
			return reflect.Zero(a.ResultType).Interface(), nil
		}
	}
}

// check returns what is wrong with the packages on a machine.
func (v *vet) check(machine string, checks []*analysis.Analyzer) (findings []string) {
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
		return strings.HasSuffix(p.ID, ".test") // a generated main function of tests
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
	names, accepted := unusedNames{}, v.accepted(all)
	for action := range graph.All() {
		if !action.IsRoot {
			continue
		}
		if action.Err != nil {
			findings = append(findings, action.Err.Error())
		}
		for _, d := range action.Diagnostics {
			at := v.fset.Position(d.Pos)
			if !slices.Contains(accepted[line{at.Filename, at.Line}], action.Analyzer.Name) {
				findings = append(findings, fmt.Sprint(at, ": ", d.Message, " (", action.Analyzer.Name, ")"))
			}
		}
		if action.Analyzer == unused.Analyzer.Analyzer {
			names.add(action.Result.(unused.Result))
		}
	}
	findings = append(findings, names.list()...)
	slices.Sort(findings)
	return slices.Compact(findings) // a package and its test variant have the same files
}

// A line is one of a file.
type line struct {
	file   string
	number int
}

// accepted returns which checks are named in comments that accept what they find:
//
//	//lint:ignore SA1019 why
func (v *vet) accepted(all []*packages.Package) map[line][]string {
	checks := map[line][]string{}
	for _, p := range all {
		for _, d := range lint.ParseDirectives(p.Syntax, v.fset) {
			if d.Command == "ignore" && len(d.Arguments) > 1 {
				at := v.fset.Position(d.Node.Pos())
				checks[line{at.Filename, at.Line}] = strings.Split(d.Arguments[0], ",")
			}
		}
	}
	return checks
}

// unusedNames finds the names that no variant of a package uses: that of its tests may
// use what the package itself does not.
type unusedNames map[token.Position]string

// add takes up the names of a variant.
func (u unusedNames) add(r unused.Result) {
	for _, o := range r.Unused {
		if _, known := u[o.Position]; !known {
			u[o.Position] = o.Kind + " " + o.Name + " is unused"
		}
	}
	for _, o := range slices.Concat(r.Used, r.Quiet) {
		u[o.Position] = ""
	}
}

// list returns a finding for each name.
func (u unusedNames) list() (findings []string) {
	for at, text := range u {
		if text != "" {
			findings = append(findings, fmt.Sprint(at, ": ", text, " (U1000)"))
		}
	}
	return findings
}
