package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// chart is a file of bar charts: columns of tables, one below the other.
type chart struct {
	file, title string
	more        bool // is better
	columns     []chartColumn
}

// chartColumn is a column of a table, with a heading unless it is "".
type chartColumn struct{ heading, table, column string }

var charts = []chart{
	{
		"memory-hot-key.svg", "One key in memory, all processors: ns a decision", false,
		[]chartColumn{{"", "memory", "hot key, parallel"}},
	},
	{"memory-uniform.svg", "100,000 keys in memory: ns a decision", false, []chartColumn{{"", "memory", "100k uniform"}}},
	{"memory-refused.svg", "A refusal in memory: ns a decision", false, []chartColumn{{"", "memory", "refused"}}},
	{
		"memory-bytes.svg", "Heap bytes a key", false,
		[]chartColumn{{"in use", "bytes", "in use"}, {"after expiry", "bytes", "after expiry"}},
	},
	{"redis.svg", "Redis: decisions a second", true, []chartColumn{
		{"1 caller", "redis", "1"}, {"100 callers", "redis", "100"}, {"1000 callers", "redis", "1000"}}},
	{"redis-p99.svg", "Redis, 100 callers: µs, 99th percentile", false, []chartColumn{{"", "redis-latency", "100, p99"}}},
	{"http.svg", "HTTP: ns added to a request that is allowed, sending headers", false, []chartColumn{
		{"net/http", "net/http, headers", added}, {"Gin", "Gin, headers", added},
		{"Echo", "Echo, headers", added}, {"Fiber", "Fiber, headers", added}}},
	{"http-no-headers.svg", "HTTP: ns added to a request that is allowed, sending no headers", false, []chartColumn{
		{"net/http", "net/http, no headers", added}, {"Gin", "Gin, no headers", added},
		{"Echo", "Echo, no headers", added}, {"Fiber", "Fiber, no headers", added}}},
	{"http-refused.svg", "HTTP: ns to refuse a request, sending headers", false, []chartColumn{
		{"net/http", "net/http, headers", refused}, {"Gin", "Gin, headers", refused},
		{"Echo", "Echo, headers", refused}, {"Fiber", "Fiber, headers", refused}}},
}

// drawCharts writes the charts for which there are figures.
func drawCharts(dir string, tables []Table) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	for _, c := range charts {
		svg := c.draw(tables)
		if svg == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// bar is one figure.
type bar struct {
	name  string
	value float64
}

// bars are the figures of a part, the best first.
func (c *chart) bars(p chartColumn, tables []Table) []bar {
	var list []bar
	for _, t := range tables {
		// The rows of other tables are passed over.
		for _, r := range t.Rows {
			if t.ID != p.table {
				break
			}
			if v := t.figure(r.Name, p.column); !math.IsNaN(v) {
				list = append(list, bar{r.Name, v})
			}
		}
	}

	// Of equal figures the order of the table stays.
	slices.SortStableFunc(list, func(a, b bar) int {
		if c.more {
			return cmp.Compare(b.value, a.value)
		}
		return cmp.Compare(a.value, b.value)
	})

	return list
}

// Sizes in pixels.
const (
	chartWidth  = 720
	labelWidth  = 220
	valueWidth  = 70
	barHeight   = 18
	barStep     = 26
	titleSpace  = 62
	headingStep = 26
	headingGap  = 8
	margin      = 10
)

// The colours differ in brightness too, and the chart has its own background, so
// it is legible on dark pages as well.
const (
	oursColour   = "#0a7d8c"
	othersColour = "#aab4c0"
	textColour   = "#1f2933"
)

// draw returns "" if there are no figures.
func (c *chart) draw(tables []Table) string {
	largest := 0.0
	// One scale for all parts, so that bars can be compared across them.
	for _, p := range c.columns {
		for _, b := range c.bars(p, tables) {
			largest = max(largest, b.value)
		}
	}
	if largest == 0 {
		return ""
	}

	// How high the chart is, is known only when all bars are drawn.
	body, y := c.drawParts(tables, largest)
	better := "less is better"
	if c.more {
		better = "more is better"
	}

	title := html.EscapeString(c.title)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" font-family="system-ui, sans-serif" font-size="13">
<title>%[3]s</title>
<rect width="100%%" height="100%%" rx="6" fill="#ffffff"/>
<g fill="%[4]s">
<text x="%[5]d" y="24" font-size="15" font-weight="600">%[3]s</text>
<text x="%[5]d" y="44" fill="#52606d">%[6]s</text>
%[7]s</g>
</svg>
`, chartWidth, y+margin, title, textColour, margin, better, body)
}

// drawParts returns the bars of all parts, and the y below them.
func (c *chart) drawParts(tables []Table, largest float64) (body string, y int) {
	var b strings.Builder
	y = titleSpace

	for _, p := range c.columns {
		// A column without figures, as of a section that was not run, has no heading either.
		list := c.bars(p, tables)
		if len(list) == 0 {
			continue
		}

		if p.heading != "" {
			y += headingGap
			fmt.Fprintf(&b, `<text x="%d" y="%d" font-weight="600">%s</text>`+"\n",
				margin, y+14, html.EscapeString(p.heading))
			y += headingStep
		}

		for _, bar := range list {
			b.WriteString(bar.draw(y, largest))
			y += barStep
		}
	}
	return b.String(), y
}

// draw returns the bar at y, with its name and its figure as text.
func (b bar) draw(y int, largest float64) string {
	colour, weight := othersColour, "400"
	if strings.HasPrefix(b.name, ours) {
		colour, weight = oursColour, "600"
	}

	// A figure that is a difference may be below 0, and every bar is wide enough to be seen.
	width := max(1, max(0, b.value)/largest*(chartWidth-labelWidth-valueWidth))

	var s strings.Builder
	fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end" font-weight="%s">%s</text>`+"\n",
		labelWidth-8, y+14, weight, html.EscapeString(b.name))
	fmt.Fprintf(&s, `<rect x="%d" y="%d" width="%.1f" height="%d" rx="2" fill="%s"/>`+"\n",
		labelWidth, y, width, barHeight, colour)
	fmt.Fprintf(&s, `<text x="%.1f" y="%d">%s</text>`+"\n",
		labelWidth+width+6, y+14, Figure(b.value))
	return s.String()
}
