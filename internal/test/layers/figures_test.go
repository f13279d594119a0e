package layers

import (
	"go/ast"
	"go/scanner"
	"go/token"
	"go/types"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ceilings says how much there may be to hold in one hand. Each is what it is today: who lowers
// a figure lowers its ceiling, and nobody raises one without a word why.
var ceilings = map[string]int{
	// After 68,000 came the command headgate with its readers of logs (3,900), owners of published
	// policies, what instances leave out, backups and bounds of the console (3,400), costs and
	// answers that count in policies, packed leases, and the goals and the model of cores of bench.
	// After 77,000 came costs that requests and answers name, shares of keys, keys near limits, the
	// gateway's upstreams, refusals and log, credit, overrides beside policies, the playground,
	// the commands of headgate over the Redis of a running system, and the program that makes the
	// site of the documentation (650).
	// After 86,000 came what a reload of the gateway puts in force (1,000), overrides and credit in
	// the console, the bounds of what a tighter limit would have refused, and matches of queries
	// and claims. Then tables of plans that policies share, the floors of bench (300), replies
	// that come late (190), and bans of overrides in headgate keys (90).
	"lines of code": 89_525,

	"files of limiter":                                 20,
	"files of store/redisstore":                        29, // latereply.go reads replies that come late
	"references against the order in limiter":          24, // a set of rules leads to its prepared step
	"references against the order in store/redisstore": 12, // connections lead to their late replies
	"files that name an algorithm":                     0,

	"methods of a type of limiter":          43, // Limiter charges and grants by key: Debit, Grant, Revoke
	"files of a type of limiter":            3,
	"methods of a type of store/redisstore": 23,
	"files of a type of store/redisstore":   3,
	"methods of a type of store/memstore":   37,
	"files of a type of store/memstore":     3,
	"methods of a type of store/failover":   22,
	"files of a type of store/failover":     3,
	"methods of a type of policy":           26, // Policy.BanOf
	"files of a type of policy":             9,

	"exported names of core":    56, // Grant, Revoke and MaxCredits, and Share, ParseShare and Whole
	"exported names of limiter": 62, // BannedUntil: a ban of a single key under any rule

	"exported names of nethttp":            4,
	"exported names of ginmw":              4,
	"exported names of echomw":             4,
	"exported names of fibermw":            4,
	"exported names of adapters/echov5mw":  4,
	"exported names of adapters/fiberv3mw": 4,

	"lines of nethttp":            148,
	"lines of ginmw":              220,
	"lines of echomw":             164,
	"lines of fibermw":            134,
	"lines of adapters/echov5mw":  185,
	"lines of adapters/fiberv3mw": 151,
}

// With -v it prints the figures.
func TestFigures(t *testing.T) {
	house := survey(t)
	figures := map[string]int{"lines of code": house.lines, "files that name an algorithm": len(house.algorithms)}

	// The rooms of many files, which have an order of reading.
	for _, dir := range []string{"limiter", "store/redisstore"} {
		r := house.room(dir)
		figures["files of "+dir] = len(r.files)
		figures["references against the order in "+dir] = r.against(t)
	}

	for _, dir := range []string{"limiter", "store/redisstore", "store/memstore", "store/failover", "policy"} {
		methods, files := house.room(dir).largest()
		figures["methods of a type of "+dir] = methods
		figures["files of a type of "+dir] = files
	}

	// What a program has to know, and of an adapter also its length.
	for _, dir := range []string{"core", "limiter"} {
		figures["exported names of "+dir] = len(house.room(dir).exported)
	}
	for _, dir := range []string{"nethttp", "ginmw", "echomw", "fibermw", "adapters/echov5mw", "adapters/fiberv3mw"} {
		figures["exported names of "+dir] = len(house.room(dir).exported)
		figures["lines of "+dir] = house.room(dir).lines
	}

	for _, of := range slices.Sorted(maps.Keys(figures)) {
		is, ceiling := figures[of], ceilings[of]
		t.Logf("%6d of at most %6d %s", is, ceiling, of)

		// A figure of 0 under a ceiling means that nothing was found to count, and not that all is
		// well.
		if is == 0 && ceiling > 0 || is > ceiling {
			t.Errorf("%s: %d, want at most %d", of, is, ceiling)
		}
	}

	for of := range ceilings {
		if _, ok := figures[of]; !ok {
			t.Errorf("%s: nothing is counted", of)
		}
	}
	t.Logf("that name an algorithm: %s", strings.Join(house.algorithms, " "))
}

// A plan is what a survey of all modules has found. Tests are no part of it.
type plan struct {
	lines      int // of code, without blank lines and comments
	rooms      map[string]*room
	algorithms []string // files outside of core and lua that name an algorithm
}

// A room is a package.
type room struct {
	lines    int
	exported []string
	files    map[string]*ast.File
	methods  map[string][]string // by receiver: the file of each
}

func (p *plan) room(dir string) *room {
	if p.rooms[dir] == nil {
		p.rooms[dir] = &room{files: map[string]*ast.File{}, methods: map[string][]string{}}
	}
	return p.rooms[dir]
}

func survey(t *testing.T) *plan {
	t.Helper()
	p := &plan{rooms: map[string]*room{}}
	// Programs, examples and tests may be as long as they are: only the library is counted.
	walkAll(t, func(dir, file string, f *ast.File) {
		forTests := strings.HasPrefix(dir, "internal/test") || strings.HasSuffix(dir, "test")
		if forTests || isFree(dir) && !strings.HasPrefix(dir, "internal/") {
			return
		}

		r := p.room(dir)
		n := linesOf(t, file)
		p.lines += n
		r.lines += n
		r.files[path.Base(file)] = f
		r.exported = append(r.exported, exported(f)...)

		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Recv != nil {
				name := receiver(d)
				r.methods[name] = append(r.methods[name], path.Base(file))
			}
		}

		// The scripts have to name the algorithms, as core and its twins do.
		if dir != "lua" && namesAlgorithm(f) {
			p.algorithms = append(p.algorithms, file)
		}
	})
	return p
}

// linesOf returns the lines of a file that have a token which is no comment.
func linesOf(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}

	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile(file, -1, len(text)), text, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}

		// A text of several lines counts as so many.
		first := set.Position(pos).Line
		for i := range 1 + strings.Count(literal, "\n") {
			lines[first+i] = true
		}
	}
}

// receiver returns the name of the type of a method.
func receiver(d *ast.FuncDecl) string {
	// A pointer and the type parameters stand around the name.
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		}
	}
}

// largest returns the number of methods of the type that has most, and the number of files that
// hold methods of the type that is in most.
func (r *room) largest() (methods, files int) {
	for _, in := range r.methods {
		slices.Sort(in)
		methods, files = max(methods, len(in)), max(files, len(slices.Compact(slices.Clone(in))))
	}
	return methods, files
}

// against returns how many pairs of files there are of which the first uses a name that the
// second declares, although it stands before it in the order of reading. The order is one in
// which few are.
func (r *room) against(t *testing.T) int {
	t.Helper()
	var files []*ast.File
	// The order of the map does not matter: files are known by their positions.
	for _, f := range r.files {
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	// What other packages declare is not known, and does not matter.
	config := types.Config{Error: func(error) {}, Importer: nothing{}}
	own, _ := config.Check("room", fset, files, info)

	uses := map[[2]string]bool{}
	for id, object := range info.Uses {
		if object.Pkg() != own {
			continue
		}
		from, to := fset.Position(id.Pos()).Filename, fset.Position(object.Pos()).Filename
		if from != to {
			uses[[2]string{from, to}] = true
		}
	}

	// Each of the rooms has files that use others, so none means that the types were not found.
	if len(uses) == 0 {
		t.Fatal("no file uses another")
	}
	return countAgainst(uses)
}

// nothing imports an empty package for every path.
type nothing struct{}

func (nothing) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}

// countAgainst puts the files into an order, those that are used before those that use them, and
// returns how many arrows from a file to one that it uses run against it. It moves one file
// after the other while that helps.
func countAgainst(uses map[[2]string]bool) int {
	var files []string
	for arrow := range uses {
		files = append(files, arrow[0], arrow[1])
	}
	slices.Sort(files)
	files = slices.Compact(files)

	// An arrow runs against the order if what is used stands behind.
	count := func(order []string) (n int) {
		at := map[string]int{}
		for i, file := range order {
			at[file] = i
		}
		for arrow := range uses {
			if at[arrow[0]] < at[arrow[1]] {
				n++
			}
		}
		return n
	}

	// Each file is tried in each place. That finds an order that no single move makes better, so
	// it is begun with several.
	improve := func(files []string) int {
		fewest := count(files)
		for better := true; better; {
			better = false
			for i := range files {
				for j := range files {
					order := slices.Clone(files)
					file := order[i]
					order = slices.Insert(slices.Delete(order, i, i+1), j, file)
					if n := count(order); n < fewest {
						files, fewest, better = order, n, true
					}
				}
			}
		}
		return fewest
	}

	fewest := len(uses)
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 0))
		r.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
		fewest = min(fewest, improve(slices.Clone(files)))
	}
	return fewest
}

// namesOfAlgorithms are the constants of core.
var namesOfAlgorithms = strings.Fields(
	"FixedWindow SlidingLog SlidingWindow TokenBucket GCRA CalendarWindow Concurrency")

// namesAlgorithm reports whether a file outside of core names an algorithm of it.
func namesAlgorithm(f *ast.File) (is bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(namesOfAlgorithms, s.Sel.Name) {
			x, isName := s.X.(*ast.Ident)
			is = is || isName && x.Name == "core"
		}
		return !is
	})
	return is
}
