package tally

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Table sums up the lines of Add and returns a table in Markdown, the largest
// number first.
func Table(r io.Reader) (string, error) {
	sums := map[string]int64{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		number, what, found := strings.Cut(lines.Text(), "\t")
		count, err := strconv.ParseInt(number, 10, 64)
		if !found || err != nil {
			return "", fmt.Errorf("line %d: %q is no tally", n, lines.Text())
		}
		sums[what] += count
	}
	if err := lines.Err(); err != nil {
		return "", err
	}

	// Equal numbers stand in the order of what was tried, so that the table is always the same.
	var b strings.Builder
	b.WriteString("| tried | of |\n|--:|---|\n")
	for _, what := range slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(&b, "| %s | %s |\n", grouped(sums[what]), what)
	}

	return b.String(), nil
}

// grouped writes a number with a comma between thousands.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
