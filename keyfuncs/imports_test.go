package keyfuncs

import (
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestNothingButTheStandardLibraryAndCoreIsImported(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		read++
		for _, spec := range parsed.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			host, _, _ := strings.Cut(path, "/")
			if strings.Contains(host, ".") && path != "github.com/headgate/headgate/core" {
				t.Errorf("%s imports %s", file.Name(), path)
			}
		}
	}
	if read == 0 {
		t.Error("there are no files")
	}
}
