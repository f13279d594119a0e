// Print reads the lines of package tally and prints the page docs/tried.md.
package main

import (
	"fmt"
	"os"

	"github.com/headgate/headgate/internal/test/tally"
)

func main() {
	table, err := tally.Table(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "print:", err)
		os.Exit(1)
	}
	fmt.Printf("# What was tried\n\nFor those who ask how it was tested.\n\n"+
		"The tests themselves have counted this, in one run of all of them:\n\n"+
		"```sh\nHEADGATE_TALLY=/tmp/tally bash .ci/run\n"+
		"go run ./internal/test/tally/print < /tmp/tally > docs/tried.md\n```\n\n%s", table)
}
