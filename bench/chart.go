package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// charts are the columns that are drawn, one file each.
var charts = []struct{ file, table, column, title string }{
	{"bench-hot-key.svg", "memory", "hot key, parallel", "One key in memory, 2 goroutines: ns a decision (less is better)"},
	{"bench-uniform.svg", "memory", "100k uniform", "100,000 keys in memory: ns a decision (less is better)"},
	{"bench-refused.svg", "memory", "refused", "A refusal in memory: ns a decision (less is better)"},
	{"bench-redis-100.svg", "redis", "100", "Redis, 100 callers: decisions a second (more is better)"},
	{"bench-nethttp.svg", "http net/http", "ns", "net/http middleware: ns a request (less is better)"},
}

// drawCharts writes those of the tables that were measured.
func drawCharts(dir string, tables []Table) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, c := range charts {
		for _, t := range tables {
			if t.ID != c.table || len(t.Rows) == 0 {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(bars(c.title, &t, c.column)), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// Sizes in pixels.
const (
	chartWidth = 720
	labelWidth = 220
	valueWidth = 70
	barHeight  = 18
	barStep    = 26
	titleSpace = 44
)

// bars draws a column of the table as horizontal bars, those of headgate in
// another colour. It says its figures in text too and reads on dark ground.
func bars(title string, t *Table, column string) string {
	var rows strings.Builder
	most, n := 0.0, 0
	for _, r := range t.Rows {
		if v := t.figure(r.Name, column); !math.IsNaN(v) {
			most = max(most, v)
		}
	}
	for _, r := range t.Rows {
		v := t.figure(r.Name, column)
		if math.IsNaN(v) {
			continue
		}
		colour := "#8a97a6"
		if strings.HasPrefix(r.Name, ours) {
			colour = "#0a7d8c"
		}
		y := titleSpace + n*barStep
		width := v / most * (chartWidth - labelWidth - valueWidth)
		fmt.Fprintf(&rows, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", labelWidth-8, y+14, html.EscapeString(r.Name))
		fmt.Fprintf(&rows, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", labelWidth, y, width, barHeight, colour)
		fmt.Fprintf(&rows, `<text x="%.1f" y="%d">%s</text>`+"\n", labelWidth+width+6, y+14, Figure(v))
		n++
	}
	height := titleSpace + n*barStep + 8
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="system-ui, sans-serif" font-size="13">
<title>%s</title>
<rect width="100%%" height="100%%" fill="#ffffff"/>
<g fill="#1f2933">
<text x="12" y="26" font-size="15" font-weight="600">%s</text>
%s</g>
</svg>
`, chartWidth, height, html.EscapeString(title), html.EscapeString(title), rows.String())
}
