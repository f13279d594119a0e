package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The colours of a terminal.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
)

// paint returns the text in a colour, if the output may have one.
func (e *env) paint(color, text string) string {
	if !e.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// printJSON prints a value as indented JSON.
func (e *env) printJSON(v any) int {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return e.fail("the result has no form in JSON: %s", safe(err.Error()))
	}
	e.out.Write(escapeControls(b.Bytes()))
	return fine
}

// escapeControls replaces the control characters that JSON may have as they are and a terminal
// obeys: DEL, and those from U+0080 to U+009F.
func escapeControls(text []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		if r >= 0x7f && r <= 0x9f {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

// safe returns a text of a user without characters that a terminal obeys.
func safe(s string) string {
	quoted := strconv.Quote(s)
	quoted = quoted[1 : len(quoted)-1]
	return strings.ReplaceAll(strings.ReplaceAll(quoted, `\"`, `"`), `\\`, `\`)
}

// maxShown is how many columns a key takes at most.
const maxShown = 60

// shown returns a key of a client for a terminal: marks that join other letters are escaped as
// control characters are, and a long key is cut.
func shown(key string) string {
	var b strings.Builder
	columns := 0
	for i, r := range key {
		text := string(r)
		if r == utf8.RuneError || unicode.Is(unicode.M, r) {
			_, size := utf8.DecodeRuneInString(key[i:])
			text = strings.Trim(strconv.QuoteToASCII(key[i:i+size]), `"`)
		}
		text = safe(text)

		// A letter of another script than those of ASCII may take two columns.
		columns += utf8.RuneCountInString(text)
		if r >= 0x1100 {
			columns++
		}
		if columns > maxShown {
			return b.String() + "…"
		}
		b.WriteString(text)
	}
	return b.String()
}

// table is a list of rows in columns. A column whose head begins with "#" has numbers.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print prints the table, indented by two.
func (t *table) print(e *env) {
	// A column is as wide as its widest cell.
	wide := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			wide[i] = max(wide[i], utf8.RuneCountInString(strings.TrimPrefix(cell, "#")))
		}
	}

	// Numbers stand at the right of their column, and texts at the left.
	line := func(row []string) string {
		var b strings.Builder
		for i, cell := range row {
			cell = strings.TrimPrefix(cell, "#")
			pad := strings.Repeat(" ", wide[i]-utf8.RuneCountInString(cell))
			if strings.HasPrefix(t.head[i], "#") {
				cell, pad = pad+cell, ""
			}
			b.WriteString("  " + cell + pad)
		}
		return strings.TrimRight(b.String(), " ")
	}

	fmt.Fprintln(e.out, e.paint(bold, line(t.head)))
	for _, row := range t.rows {
		fmt.Fprintln(e.out, line(row))
	}
}

// count writes a number with commas between its thousands.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// percent writes a part of a whole.
func percent(part, whole int64) string {
	if whole == 0 {
		return "0%"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 2, 64) + "%"
}

// counted writes a number and its noun.
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}
