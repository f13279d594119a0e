// This file draws a limit in characters, and has the table of what it admits.

package drawing

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// The size of a drawing in characters, without its axes.
const textWidth, textHeight = 60, 8

// eighths are a character's lower parts, from none to all of it.
var eighths = []rune(" ▁▂▃▄▅▆▇█")

// Text returns the drawing of [SVG] in characters, or the mistake in the limit.
func Text(l core.Limit) (string, error) {
	c, err := simulate(l)
	if err != nil {
		return "", err
	}
	values := make([]float64, textWidth)
	for i := range values {
		values[i] = float64(c.after(c.span * time.Duration(i+1) / textWidth))
	}

	what := "admitted in all, of a caller that never stops asking"
	if l.Leased() {
		what = "held at once, by requests that take half the ttl"
	}
	ends := fmt.Sprintf("%-*s%*s", textWidth/2, "0", textWidth-textWidth/2, Span(c.span))
	return what + "\n" + Area(values, textHeight) + strings.Repeat(" ", labelWidth+1) + ends + "\n", nil
}

// labelWidth is the width of the numbers beside an area.
const labelWidth = 7

// Area draws the values side by side as columns in so many lines, with their highest at the left.
func Area(values []float64, lines int) string {
	highest := slices.Max(append([]float64{0}, values...))
	var b strings.Builder
	for row := lines - 1; row >= 0; row-- {
		label := ""
		if row == lines-1 {
			label = Short(highest)
		}
		if row == 0 {
			label = "0"
		}

		fmt.Fprintf(&b, "%*s▕", labelWidth, label)
		for _, v := range values {
			b.WriteRune(part(v, highest, row, lines))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Line draws the values side by side in one line.
func Line(values []float64) string {
	highest := slices.Max(append([]float64{0}, values...))
	var b strings.Builder
	for _, v := range values {
		b.WriteRune(part(v, highest, 0, 1))
	}
	return b.String()
}

// part returns the part of a value that a line of so many shows, the lowest of which is 0. A value
// that is not 0 can always be seen.
func part(v, highest float64, row, lines int) rune {
	full := 0
	if highest > 0 && v > 0 {
		full = max(1, int(v/highest*float64(lines*8)+0.5))
	}
	return eighths[min(8, max(0, full-row*8))]
}

// Row is what a limit has admitted until an instant after the first request.
type Row struct {
	After time.Duration
	Units int64
}

// Table returns what a valid limit admits a caller that never stops asking: at once, and after
// parts and multiples of the period. It is nil for a limit that is not about time.
func Table(l core.Limit) []Row {
	c, err := simulate(l)
	if err != nil || l.Leased() {
		return nil
	}

	// The drawing begins with the first request.
	period := c.span / periods
	var rows []Row
	for _, after := range []time.Duration{0, period / 10, period / 4, period / 2, period, 2 * period} {
		rows = append(rows, Row{after, c.after(after)})
	}
	return rows
}

// after returns the units at an instant of the drawing.
func (c *course) after(at time.Duration) int64 {
	i := sort.Search(len(c.points), func(i int) bool { return c.points[i].at > at })
	if i == 0 {
		return 0
	}
	return c.points[i-1].units
}
