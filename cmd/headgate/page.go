// This file writes the report of suggest as a page of its own, with pictures and without scripts.

package main

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/drawing"
	"github.com/headgate/headgate/internal/textform"
)

// The size of a picture, and of its margins.
const (
	pictureWidth, pictureHeight = 720, 260
	marginLeft, marginRight     = 60, 20
	marginTop, marginBottom     = 16, 40
)

const pageStyle = `:root{color-scheme:light dark;--ink:#1f2937;--dim:#4b5563;--grid:#d1d5db;--bar:#0f62a8;--mark:#b45309;--paper:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e5e7eb;--dim:#9ca3af;--grid:#4b5563;--bar:#7cc4ff;--mark:#fbbf24;--paper:#111827}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:760px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--grid)}td.n,th.n{text-align:right}
code{font-family:ui-monospace,monospace}svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--dim)}
.grid{stroke:var(--grid)}.bar{fill:var(--bar)}.line{fill:none;stroke:var(--bar);stroke-width:2}
.mark{stroke:var(--mark);stroke-width:2;stroke-dasharray:5 4}svg text.mark-text{fill:var(--mark)}`

// page returns the report as a whole document. All texts of users in it are escaped.
func (s *suggestResult) page() string {
	var b strings.Builder
	b.WriteString("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">" +
		"<meta name=\"viewport\" content=\"width=device-width\"><title>Limits by access logs</title><style>" +
		pageStyle + "</style></head><body>\n<h1>Limits by access logs</h1>\n")
	fmt.Fprintf(&b, "<p>%s to %s UTC: %s of %s. At most %s%% of the callers may be refused a request.</p>\n<ul>",
		when(s.First), when(s.Last), counted(s.Requests, "request"), counted(s.Callers, "caller"),
		strconv.FormatFloat(100*s.Touch, 'f', -1, 64))

	// What was read, and what follows from it.
	for _, l := range s.Logs {
		fmt.Fprintf(&b, "<li>%s (%s): %s, %s broken</li>", html.EscapeString(safe(l.File)), l.Format,
			counted(l.Requests, "request"), count(l.Broken))
	}

	for _, n := range s.Notes {
		fmt.Fprintf(&b, "<li>%s</li>", html.EscapeString(n))
	}

	b.WriteString("</ul>\n<table><tr><th>limit</th><th class=\"n\">callers refused</th><th class=\"n\">share</th>" +
		"<th class=\"n\">requests refused</th></tr>\n")
	for _, x := range s.Suggestions {
		refused := "-"
		if x.Refused != nil {
			refused = count(*x.Refused)
		}
		same := ""
		if x.Same != "" {
			same = ", as <code>" + html.EscapeString(x.Same) + "</code>"
		}
		fmt.Fprintf(&b, "<tr><td><code>%s</code>%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td>"+
			"<td class=\"n\">%s</td></tr>\n", html.EscapeString(x.Limit), same, count(x.Touched),
			percent(x.Touched, s.Callers), refused)
	}
	b.WriteString("</table>\n")

	// Each picture has a sentence that says what it shows.
	first := html.EscapeString(s.Suggestions[0].Limit)
	period := textform.Duration(s.Period)
	fmt.Fprintf(&b, "<h2>Callers by their peak in any %s</h2>\n<p>The dashed line is <code>%s</code>, "+
		"which refuses those behind it.</p>\n%s", period, html.EscapeString(s.rolling()), s.peaksPicture())
	fmt.Fprintf(&b, "<h2>Callers refused, against the limit</h2>\n<p>Under a quota each %s, "+
		"with a burst of the quota.</p>\n%s", period, s.sharePicture())
	if len(s.refusals.Counts) > 0 {
		fmt.Fprintf(&b, "<h2>Refusals over time</h2>\n<p>Under <code>%s</code>, each bar %s.</p>\n%s", first,
			s.refusals.Step, s.timePicture())
	}
	b.WriteString("</body></html>\n")
	return b.String()
}

// picture is a drawing on two axes.
type picture struct {
	strings.Builder
	end float64 // of the upright axis
}

// newPicture returns a picture with an upright axis up to a value, and what it shows in words.
func newPicture(what string, highest float64, unit string) *picture {
	p := &picture{}
	fmt.Fprintf(p, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, pictureWidth, pictureHeight,
		html.EscapeString(what))
	ticks := drawing.Ticks(highest)
	p.end = ticks[len(ticks)-1]
	for _, v := range ticks {
		fmt.Fprintf(p, `<line class="grid" x1="%d" x2="%d" y1="%[3]s" y2="%[3]s"/>`, marginLeft,
			pictureWidth-marginRight, p.y(v))
		fmt.Fprintf(p, `<text x="%d" y="%s" dy="4" text-anchor="end">%s%s</text>`, marginLeft-6, p.y(v),
			drawing.Short(v), unit)
	}
	return p
}

// x returns the coordinate of a part of the level axis, and y that of a value.
func (p *picture) x(part float64) string {
	return tenths(marginLeft + part*(pictureWidth-marginLeft-marginRight))
}

func (p *picture) y(v float64) string {
	return tenths(pictureHeight - marginBottom - v/p.end*(pictureHeight-marginTop-marginBottom))
}

func tenths(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// label writes a text below the level axis.
func (p *picture) label(part float64, text string) {
	fmt.Fprintf(p, `<text x="%s" y="%d" text-anchor="middle">%s</text>`, p.x(part), pictureHeight-marginBottom+18,
		html.EscapeString(text))
}

// bars draws values side by side, from the ground.
func (p *picture) bars(values []float64) {
	for i, v := range values {
		if v <= 0 {
			continue
		}
		left, right := float64(i)/float64(len(values)), (float64(i)+0.9)/float64(len(values))
		fmt.Fprintf(p, `<path class="bar" d="M%s %sV%sH%sV%[2]sZ"/>`, p.x(left), p.y(0), p.y(v), p.x(right))
	}
}

// mark draws an upright line.
func (p *picture) mark(part float64, text string) {
	fmt.Fprintf(p, `<line class="mark" x1="%[1]s" x2="%[1]s" y1="%[2]d" y2="%[3]d"/>`, p.x(part), marginTop,
		pictureHeight-marginBottom)
	fmt.Fprintf(p, `<text class="mark-text" x="%s" y="12" text-anchor="middle">%s</text>`, p.x(part),
		html.EscapeString(text))
}

func (p *picture) close() string {
	p.WriteString("</svg>\n")
	return p.String()
}

// quotaOf returns the quota of a suggestion, and 0 for none.
func quotaOf(limit string) int64 {
	l, err := core.ParseLimit(limit)
	if err != nil {
		return 0
	}
	return l.Quota
}

// rolling returns the suggestion that counts in any span of one period, as the peaks do, or "".
func (s *suggestResult) rolling() string {
	for _, x := range s.Suggestions {
		if l, err := core.ParseLimit(x.Limit); err == nil && l.SegmentCount() > 0 {
			return x.Limit
		}
	}
	return ""
}

// peaksPicture shows how many callers have which peak.
func (s *suggestResult) peaksPicture() string {
	values, highest := make([]float64, len(s.Peaks)), 0.0
	at, quota := len(values), quotaOf(s.rolling())
	for i, bin := range s.Peaks {
		values[i] = float64(bin.Callers)
		highest = max(highest, values[i])
		if at == len(values) && bin.Peak > quota {
			at = i
		}
	}

	// Eight labels leave each other room.
	p := newPicture("how many callers have which peak", highest, "")
	p.bars(values)
	for i := 0; i < len(values); i += max(1, len(values)/8) {
		p.label((float64(i)+0.45)/float64(len(values)), drawing.Short(float64(s.Peaks[i].Peak)))
	}
	p.mark(float64(at)/float64(len(values)), s.rolling())
	return p.close()
}

// sharePicture shows the share of callers that a quota would refuse, on an axis of logarithms.
func (s *suggestResult) sharePicture() string {
	last := s.Curve[len(s.Curve)-1].Quota
	part := func(quota int64) float64 { return math.Log(float64(quota)) / math.Log(float64(max(2, last))) }
	p := newPicture("the share of callers that a quota refuses", 100*s.Curve[0].Share, "%")

	var path strings.Builder
	for i, point := range s.Curve {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(&path, "%s%s %s", verb, p.x(part(point.Quota)), p.y(100*point.Share))
	}
	fmt.Fprintf(p, `<path class="line" d="%s"/>`, path.String())

	// A label at each power of ten, and one at twice and five times it.
	for unit := int64(1); unit <= last; unit *= 10 {
		for _, n := range []int64{1, 2, 5} {
			if n*unit <= last {
				p.label(part(n*unit), drawing.Short(float64(n*unit)))
			}
		}
	}
	p.mark(part(quotaOf(s.Suggestions[0].Limit)), s.Suggestions[0].Limit)
	return p.close()
}

// timePicture shows refusals over time.
func (s *suggestResult) timePicture() string {
	t := &s.refusals
	values, highest := floats(t.Counts), 0.0
	for _, v := range values {
		highest = max(highest, v)
	}

	p := newPicture("refusals over time", highest, "")
	p.bars(values)

	// The day is named where the log is longer than one.
	end := t.Start.Add(t.Step * time.Duration(len(values)))
	form := "15:04"
	if end.Sub(t.Start) > 24*time.Hour {
		form = "01-02 15:04"
	}

	ticks, _ := drawing.TimeTicks(t.Start, end)
	for _, at := range ticks {
		p.label(float64(at.Sub(t.Start))/float64(end.Sub(t.Start)), at.Format(form))
	}

	return p.close()
}
