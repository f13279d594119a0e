package playground

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/drawing"
	"github.com/headgate/headgate/internal/textform"
)

// The sizes of the drawing, and its margins. A strip of bars has its distance from what is above.
const (
	minWidth, maxWidth = 280, 1600
	left, right, top   = 52, 32, 28
	plotHeight         = 200
	stripHeight        = drawing.SparkHeight + 18
)

// sketch is the course of one or two replays, in pixels.
type sketch struct {
	strings.Builder
	replays []*replay
	span    time.Duration
	wide    int           // the pixels of the span
	bar     time.Duration // what a bar stands for
	ticks   []float64     // of the admitted requests
}

func drawingOf(replays []*replay, span time.Duration, width int) *sketch {
	s := &sketch{replays: replays, span: span, wide: min(max(width, minWidth), maxWidth) - left - right}
	s.bar = drawing.RoundStep(span, s.wide/drawing.SparkWidth(1))

	// One limit may admit nothing, but an axis has a height.
	most := 0
	for _, r := range replays {
		most = max(most, r.admitted)
	}
	s.ticks = drawing.Ticks(float64(most))
	return s
}

func (s *sketch) x(at time.Duration) float64 {
	return left + float64(s.wide)*float64(at)/float64(s.span)
}

func (s *sketch) y(admitted float64) float64 {
	return top + plotHeight*(1-admitted/s.ticks[len(s.ticks)-1])
}

// bottom is the end of the last strip.
func (s *sketch) bottom() int { return top + plotHeight + stripHeight*len(s.replays) }

// letter is the name of a side in the drawing, and its class there.
func letter(side int) string { return string(rune('a' + side)) }

// svg returns the drawing. Its colours are those of the page's style sheet.
func (s *sketch) svg(sides []Side, summary string) string {
	var names []string
	for i := range sides {
		names = append(names, sides[i].Limit)
	}

	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" class="drawing" width="%d" height="%[2]d"`+
		` viewBox="0 0 %[1]d %[2]d" role="img" aria-labelledby="drawing-title drawing-text"><title id="drawing-title">%s`+
		`</title><desc id="drawing-text">%s</desc>`,
		left+s.wide+right, s.bottom()+24,
		html.EscapeString("Requests admitted over time: "+strings.Join(names, " and ")), html.EscapeString(summary))

	s.axes()
	for i, r := range s.replays {
		s.course(i, r)
		s.strip(i, r)
	}

	s.WriteString("</svg>")
	return s.String()
}

// axes draws the grid and its numbers.
func (s *sketch) axes() {
	fmt.Fprintf(s, `<text x="0" y="14">admitted in all</text>`)
	for _, v := range s.ticks {
		// Requests are whole.
		if v != float64(int64(v)) {
			continue
		}
		fmt.Fprintf(s, `<path class="grid" d="M%d %.1fH%.1f"/><text x="%d" y="%.1f" dy="4" text-anchor="end">%s</text>`,
			left, s.y(v), s.x(s.span), left-8, s.y(v), drawing.Short(v))
	}

	// A narrow drawing has room for fewer words.
	for _, at := range drawing.SpanTicks(s.span, min(6, s.wide/62)) {
		anchor := "middle"
		if s.x(at) > s.x(s.span)-12 {
			anchor = "end" // it would leave the picture
		}
		fmt.Fprintf(s, `<path class="grid" d="M%.1f %dV%d"/><text x="%.1f" y="%d" text-anchor="%s">%s</text>`,
			s.x(at), top, s.bottom(), s.x(at), s.bottom()+18, anchor, short(at))
	}
}

// short writes a duration without units that are zero, and in days if it is so many.
func short(d time.Duration) string {
	if d%(24*time.Hour) == 0 {
		return drawing.Span(d)
	}
	return textform.Duration(d)
}

// course draws the admitted requests as a line of steps, and its letter at the end. The letters
// stand side by side, so that they do not meet.
func (s *sketch) course(side int, r *replay) {
	var path strings.Builder
	fmt.Fprintf(&path, "M%d %.1f", left, s.y(0))

	// Steps within a pixel are one.
	n, drawn := 0, ""
	flush := func() {
		if drawn != "" {
			fmt.Fprintf(&path, "H%sV%.1f", drawn, s.y(float64(n)))
		}
	}
	for _, q := range r.requests {
		if !q.admitted {
			continue
		}
		x := strconv.FormatFloat(s.x(time.Duration(q.at)*time.Microsecond), 'f', 0, 64)
		if x != drawn {
			flush()
			drawn = x
		}
		n++
	}

	flush()
	fmt.Fprintf(&path, "H%.1f", s.x(s.span))

	if side == 0 {
		fmt.Fprintf(s, `<path class="area" d="%sV%.1fH%dZ"/>`, path.String(), s.y(0), left)
	}
	fmt.Fprintf(s, `<path class="line %s" d="%s"/><text class="letter" x="%.1f" y="%.1f" dy="4">%s</text>`,
		letter(side), path.String(), s.x(s.span)+float64(8+11*side), s.y(float64(r.admitted)),
		strings.ToUpper(letter(side)))
}

// strip draws the requests of a side as bars: all of them pale, and the admitted ones filled.
func (s *sketch) strip(side int, r *replay) {
	bars := int((s.span + s.bar - 1) / s.bar)
	asked, admitted := make([]int64, bars), make([]int64, bars)

	for _, q := range r.requests {
		at := q.at / s.bar.Microseconds()
		asked[at]++
		if q.admitted {
			admitted[at]++
		}
	}

	y := top + plotHeight + stripHeight*(side+1) - drawing.SparkHeight
	all, of := drawing.Sparkline(asked, admitted)
	stretch := (s.x(s.bar) - left) / float64(drawing.SparkWidth(1))
	fmt.Fprintf(s, `<text class="letter" x="%d" y="%d" text-anchor="end">%s</text>`+
		`<g transform="translate(%d %d) scale(%.4f 1)"><path class="asked" d="%s"/><path class="bars %s" d="%s"/></g>`,
		left-8, y+drawing.SparkHeight-6, strings.ToUpper(letter(side)), left, y, stretch, all, letter(side), of)
}
