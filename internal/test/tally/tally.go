// Package tally counts the inputs that tests have tried, for docs/tried.md:
//
//	HEADGATE_TALLY=/tmp/tally bash .ci/run
//	go run ./internal/test/tally/print < /tmp/tally > docs/tried.md
package tally

import (
	"fmt"
	"os"
	"testing"
)

// Add records that the test has tried n inputs of a kind. what names the kind in the
// plural, such as "spellings of an address". Without HEADGATE_TALLY, the path
// of a file, it does nothing. It is safe for concurrent use, also by several
// processes.
func Add(t testing.TB, what string, n int64) {
	t.Helper()
	path := os.Getenv("HEADGATE_TALLY")
	if path == "" || n == 0 {
		return
	}

	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	// One write of a line stays in one piece, also beside other processes.
	if _, err := fmt.Fprintf(file, "%d\t%s\n", n, what); err != nil {
		t.Fatal(err)
	}
}
