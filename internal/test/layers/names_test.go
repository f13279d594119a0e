package layers

import (
	"cmp"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// A meaning is one function, method or type of a name: where it stands and what its comment says.
type meaning struct{ room, receiver, says string }

// forced are the names of methods that an interface of the standard library, of a framework or of
// a protocol asks for. They mean the same everywhere, and are not listed.
var forced = strings.Fields(`
main init
String Error Is As Unwrap Format
Close Read Write ReadByte Seek Flush FlushError Hijack Push ReadFrom WriteString WriteTo
Header WriteHeader ServeHTTP RoundTrip CloseIdleConnections
MarshalJSON UnmarshalJSON MarshalText UnmarshalText MarshalYAML UnmarshalYAML AppendText
Len Less Swap Pop
Accept Addr Dial LocalAddr RemoteAddr SetDeadline SetReadDeadline SetWriteDeadline
Enabled Handle WithAttrs WithGroup
Deadline Done Err Value
Open Stat
CaddyModule Provision Validate Cleanup UnmarshalCaddyfile
Collect Describe Export Shutdown ForceFlush
DialHook ProcessHook ProcessPipelineHook
`)

// TestNames gates nothing. With -v it prints the names of functions and methods that stand in
// three packages or more, each with its receivers and the first sentence of its comment, so that
// a reader can judge whether they mean one thing.
func TestNames(t *testing.T) {
	names := map[string][]meaning{}
	walkAll(t, func(dir, _ string, f *ast.File) {
		for _, d := range f.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || slices.Contains(forced, d.Name.Name) {
				continue
			}
			m := meaning{room: dir, says: firstSentence(d.Doc.Text())}
			if d.Recv != nil {
				m.receiver = receiver(d)
			}
			names[d.Name.Name] = append(names[d.Name.Name], m)
		}
	})

	for _, name := range slices.Sorted(maps.Keys(names)) {
		rooms := map[string]bool{}
		for _, m := range names[name] {
			rooms[m.room] = true
		}
		if len(rooms) < 3 {
			continue
		}

		t.Logf("%s, in %d packages", name, len(rooms))
		for _, m := range names[name] {
			t.Logf("    %s (%s) %s", m.room, cmp.Or(m.receiver, "func"), m.says)
		}
	}
}

// firstSentence returns the text up to the first full stop, in one line.
func firstSentence(doc string) string {
	doc = strings.Join(strings.Fields(doc), " ")
	if end := strings.Index(doc, ". "); end >= 0 {
		doc = doc[:end+1]
	}
	return doc
}

// otherReceivers lists the receivers that are not the initial of their types, each as
// "folder type receiver", where the initial would read worse.
var otherReceivers = []string{
	// The letter o is easily taken for a zero.
	"core Op op",
	// An algorithm is called with a State, which is s.
	"core slidingWindow w",
	// The letter i is that of a counter.
	"policy Index x",
	// A step and a shard are called with the Store, which is s.
	"store/memstore step t",
	"store/memstore shard h",
}

// TestReceiversAreInitials holds that a method calls its receiver by the initial of its type, in
// lower case. That of an error may be e, as in the standard library.
func TestReceiversAreInitials(t *testing.T) {
	found := map[string]bool{}
	walkAll(t, func(dir, file string, f *ast.File) {
		for _, d := range f.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || d.Recv == nil || len(d.Recv.List[0].Names) == 0 {
				continue
			}

			typ, name := receiver(d), d.Recv.List[0].Names[0].Name
			first, _ := utf8.DecodeRuneInString(typ)
			isError := name == "e" && strings.HasSuffix(typ, "Error")
			if name == "_" || name == string(unicode.ToLower(first)) || isError {
				continue
			}

			exception := strings.Join([]string{dir, typ, name}, " ")
			found[exception] = true
			if !slices.Contains(otherReceivers, exception) {
				t.Errorf("%s: the receiver of %s.%s is %q, not the initial of its type",
					place(file, d), typ, d.Name.Name, name)
			}
		}
	})

	for _, exception := range otherReceivers {
		if !found[exception] {
			t.Errorf("%q is listed and is not in the code", exception)
		}
	}
}

// riddles are names that said nothing to a reader, and what the first of each is called now.
var riddles = map[string]string{
	"few":        "linearSearchMax",
	"line":       "joinRow, or the name of the queue",
	"details":    "scriptXY",
	"stand":      "waitInLine",
	"rest":       "sleepUntilDue",
	"question":   "askStore",
	"cut":        "endHeader",
	"blame":      "recordFailure",
	"blames":     "isPrimaryFault",
	"trouble":    "errorKind",
	"lastCounts": "recorderCloser",
	"asked":      "limiterKey",
}

// TestRiddlesDoNotComeBack holds that no function, method, type, constant or variable of a package
// has a name of the riddles.
func TestRiddlesDoNotComeBack(t *testing.T) {
	walkAll(t, func(dir, file string, f *ast.File) {
		for _, id := range declared(f) {
			if better, is := riddles[id.Name]; is {
				t.Errorf("%s: %q says nothing of what it is; another was renamed %s", place(file, id), id.Name, better)
			}
		}
	})
}

// declared returns the names that a file declares for its package, and those of its methods.
func declared(f *ast.File) (ids []*ast.Ident) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			ids = append(ids, d.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					ids = append(ids, spec.Name)
				case *ast.ValueSpec:
					ids = append(ids, spec.Names...)
				}
			}
		}
	}
	return ids
}

// place returns the file and the line of a part of its syntax.
func place(file string, n ast.Node) string {
	return path.Clean(file) + ":" + strconv.Itoa(fset.Position(n.Pos()).Line)
}
