package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// readmeRow is a row of README.md's table of speed: figures of the page of benchmarks about the
// same work, and the same headers, of headgate and of a peer.
type readmeRow struct {
	text, title, column string
	ours, peer          string
	more                bool // is better
}

var readmeRows = []readmeRow{
	{"one key in memory: ns a decision", memoryTitle, hotKey, ours, goLimits, false},
	{"Redis, 100 callers: decisions a second", redisTitle, "100", ours, rueidisGCRA, true},
	{"net/http, X-RateLimit headers: ns added", "net/http, sending headers", added, oursX, httpLimits, false},
	{"Fiber, X-RateLimit headers: ns added", "Fiber, sending headers", added, oursX, fiberOwn, false},
}

const readmeHeading = "| | headgate | a peer |\n|---|--:|---|\n"

// readmeTable returns the table from a page of benchmarks. The better figure is bold.
func readmeTable(page string) (string, error) {
	var b strings.Builder
	b.WriteString(readmeHeading)

	for _, r := range readmeRows {
		own, err := cellOf(page, r.title, r.ours, r.column)
		if err != nil {
			return "", err
		}
		other, err := cellOf(page, r.title, r.peer, r.column)
		if err != nil {
			return "", err
		}

		switch a, b := number(own), number(other); {
		case a < b != r.more && a != b:
			own = "**" + own + "**"
		case a != b:
			other = "**" + other + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s (%s) |\n", r.text, own, other, r.peer)
	}
	return b.String(), nil
}

// writeReadme puts the table of a page into the place of the one in the file.
func writeReadme(file, page string) error {
	table, err := readmeTable(page)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}

	before, rest, found := strings.Cut(string(text), readmeHeading)
	_, after, ends := strings.Cut(rest, "\n\n")
	if !found || !ends {
		return fmt.Errorf("%s has no table of speed", file)
	}
	return os.WriteFile(file, []byte(before+table+"\n"+after), 0o644)
}

// cellOf returns the text of a figure in the table under a title.
func cellOf(page, title, row, column string) (string, error) {
	_, section, _ := strings.Cut(page, "\n### "+title+"\n")
	section, _, _ = strings.Cut(section, "\n### ")

	at := -1
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		// The first row has no name and the columns.
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
			if cells[0] == "" && cells[i] == column {
				at = i
			}
		}
		if cells[0] == row && at > 0 && number(cells[at]) > 0 {
			return cells[at], nil
		}
	}
	return "", fmt.Errorf("the page of benchmarks has no figure of %s, %q, at %q", title, row, column)
}

// number returns the value of a figure in a table, or 0.
func number(text string) float64 {
	digits, thousands := strings.CutSuffix(text, "k")
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0
	}
	if thousands {
		v *= 1000
	}
	return v
}
