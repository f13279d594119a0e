package service

import (
	"encoding/csv"
	"strings"
	"testing"
	"unicode/utf8"
)

// No cell is a formula, whichever character a spreadsheet takes to divide a line.
func TestCSVHasNoFormula(t *testing.T) {
	for _, text := range []string{
		"=1", "+1", "-1", "@x", "|x", "%x", "\t=1", "\r=1", "\n=1", " =1", `"=1`, "＝1", "＋1", "－1", "＠x",
		"x;=1", "x;+1", "x;-1", "x;@x", "x; =1", `x;"=1"`, `x;"" =1`, "x;;=1", "x\t=1", "x\n=1", "x\r\n=1", "x;＝1",
		`{"a":"b;=HYPERLINK(\"http://evil.example\")"}`, "x,y;=1",
	} {
		var b strings.Builder
		w := csv.NewWriter(&b)
		if err := w.Write([]string{"1", inert(text), "2"}); err != nil {
			t.Error(err)
		}
		w.Flush()

		// Read as a spreadsheet would with each of the characters that it may take to divide
		// cells.
		for _, divider := range []rune{',', ';', '\t'} {
			r := csv.NewReader(strings.NewReader(b.String()))
			r.Comma, r.LazyQuotes, r.FieldsPerRecord = divider, true, -1
			rows, err := r.ReadAll()
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
			for _, row := range rows {
				for _, cell := range row {
					if begin, _ := utf8.DecodeRuneInString(strings.TrimLeft(cell,
						` "`)); strings.ContainsRune("=+-@|%＝＋－＠", begin) {
						t.Errorf("%q has the cell %q at %q", text, cell, divider)
					}
				}
			}
		}
	}

	// Texts that are harmless stay as they are.
	for _, text := range []string{"", "x", "a-b", "a=b; c", "192.0.2.1;x", "{\"limit\":\"-1\"}", "é; ü", "\xff"} {
		equal(t, "a plain text", inert(text), text)
	}
}
