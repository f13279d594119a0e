package drawing

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// The size of the drawing, and of its margins.
const (
	width, height = 640, 240
	left, right   = 64, 16
	top, bottom   = 28, 36
)

// style makes the drawing readable in light and dark colour schemes.
const style = `text{font:12px system-ui,sans-serif;fill:#374151}.grid{stroke:#d1d5db;stroke-width:1}` +
	`.line{fill:none;stroke:#0f62a8;stroke-width:2}.area{fill:#0f62a8;fill-opacity:.12}` +
	`.rate{stroke:#b45309;stroke-width:1.5;stroke-dasharray:5 4}` +
	`@media(prefers-color-scheme:dark){text{fill:#d1d5db}.grid{stroke:#4b5563}` +
	`.line{stroke:#7cc4ff}.area{fill:#7cc4ff}.rate{stroke:#fbbf24}}`

// SVG returns a drawing of the limit as a complete document, or the mistake in the
// limit. All of its text is numbers, spans and constants.
func SVG(l core.Limit) (string, error) {
	c, err := simulate(l)
	if err != nil {
		return "", err
	}

	// The title and the description come first, as what a screen reader says in place of the
	// picture.
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="t d">`,
		width, height)
	fmt.Fprintf(&b, `<title id="t">%s</title><desc id="d">%s</desc><style>%s</style>`,
		html.EscapeString("Requests that "+l.String()+" admits over time"), html.EscapeString(c.inWords(l)), style)

	// A lease is held and given back, so a rate would mean nothing for it.
	c.axes(&b, l)
	c.steps(&b)
	if !l.Leased() {
		c.rate(&b, l)
	}

	b.WriteString(`</svg>`)
	return b.String(), nil
}

// x returns the coordinate of an instant, and y that of a number of units.
func (c *course) x(at time.Duration) string {
	return coordinate(left + float64(at)/float64(c.span)*(width-left-right))
}

func (c *course) y(units float64) string {
	return coordinate(height - bottom - units/float64(max(1, c.max))*(height-top-bottom))
}

func coordinate(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// gridStep returns the smallest round number that fits into highest at most five
// times.
func gridStep(highest int64) int64 {
	for unit := int64(1); ; unit *= 10 {
		for _, n := range []int64{1, 2, 5} {
			if highest/(n*unit) <= 5 {
				return n * unit
			}
		}
	}
}

// axes draws the grid: a line at each Period, and one at each grid step.
func (c *course) axes(b *strings.Builder, l core.Limit) {
	what := "admitted in all"
	if l.Leased() {
		what = "held at once"
	}
	fmt.Fprintf(b, `<text x="%d" y="16">%s</text>`, 8, what)

	for i := range periods + 1 {
		at := time.Duration(i) * l.Period
		fmt.Fprintf(b, `<line class="grid" x1="%[1]s" x2="%[1]s" y1="%[2]d" y2="%[3]d"/>`,
			c.x(at), top, height-bottom)

		// The last word would leave the picture if it stood in the middle of its line.
		anchor := "middle"
		if i == periods {
			anchor = "end"
		}
		fmt.Fprintf(b, `<text x="%s" y="%d" text-anchor="%s">%s</text>`,
			c.x(at), height-bottom+18, anchor, Span(at))
	}

	for n := int64(0); n <= c.max; n += gridStep(c.max) {
		fmt.Fprintf(b, `<line class="grid" x1="%d" x2="%d" y1="%[3]s" y2="%[3]s"/>`,
			left, width-right, c.y(float64(n)))
		fmt.Fprintf(b, `<text x="%d" y="%s" dy="4" text-anchor="end">%s</text>`,
			left-6, c.y(float64(n)), short(n))
	}
}

// steps draws the course as a line of steps, and the area under it.
func (c *course) steps(b *strings.Builder) {
	var path strings.Builder
	for i, p := range c.points {
		if i == 0 {
			fmt.Fprintf(&path, "M%s %s", c.x(p.at), c.y(float64(p.units)))
			continue
		}
		fmt.Fprintf(&path, "H%sV%s", c.x(p.at), c.y(float64(p.units)))
	}

	// The area goes back along the ground to where the line began.
	fmt.Fprintf(b, `<path class="area" d="%sH%sV%[3]sH%[4]sZ"/>`,
		path.String(), c.x(c.span), c.y(0), c.x(0))
	fmt.Fprintf(b, `<path class="line" d="%s"/>`, path.String())
}

// rate draws Quota a Period, from the first request on.
func (c *course) rate(b *strings.Builder, l core.Limit) {
	end := float64(l.Quota) * periods
	fmt.Fprintf(b, `<line class="rate" x1="%s" y1="%s" x2="%s" y2="%s"/>`,
		c.x(0), c.y(0), c.x(c.span), c.y(min(end, float64(c.max))))
	fmt.Fprintf(b, `<text x="%d" y="16" text-anchor="end">dashed: %s each %s</text>`,
		width-right, short(l.Quota), Span(l.Period))
}

// Span writes a duration without its zero units.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == 0:
		return "0"
	case d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + "d"
	case d%time.Hour == 0:
		return strconv.FormatInt(int64(d/time.Hour), 10) + "h"
	case d%time.Minute == 0:
		return strconv.FormatInt(int64(d/time.Minute), 10) + "m"
	}
	return d.String()
}

// short writes a number of five digits or more in thousands, millions and so on.
func short(n int64) string {
	const names = "kMGTP"
	if n < 10_000 {
		return strconv.FormatInt(n, 10)
	}
	v, i := float64(n)/1000, 0
	for ; v >= 1000 && i < len(names)-1; i++ {
		v /= 1000
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + names[i:i+1]
}
