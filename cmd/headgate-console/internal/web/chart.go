package web

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/internal/drawing"
	"github.com/headgate/headgate/policy/stats"
)

// chart has an area for each kind of requests, on each other, and a bar for each step of a range.
// Areas are as high as the requests a second in a step. Places are in percent, so that a chart fits
// any width without a change of its text and lines.
type chart struct {
	Y, X    []axisTick
	Areas   []area
	Bars    []bar
	Marks   []mark
	Shown   []kind // that have requests, and are not left out
	Text    string // for people who cannot see it
	Step    string
	Seconds int64  // that a step has
	Counted string // "requests" or "decisions"
}

// axisTick is a place on an axis.
type axisTick struct {
	At, Words string
	Minor     bool      // has no words on a narrow screen
	When      time.Time // of the time axis
	Day       bool      // the time axis has days, and no times of day
}

// bar is a step of a range.
type bar struct {
	ID       int64 // stays while the range moves on
	From, To time.Time
	Open     bool // the step has not ended
	Rate     string
	figures
}

// area is what the bars have of a kind and of those below it. One of those below is drawn over it.
type area struct {
	Class string
	Path  string // over a width of a unit for each bar, and a height of 100
}

// block is a part of a bar that lies on its side.
type block struct{ Class, Y, Height string }

// mark has the changes of policies about a step.
type mark struct {
	At      string
	ID      int64
	Changes []service.Marker
}

// Link leads to the history of the policy that was changed, or to the list of several.
func (m mark) Link() string {
	for _, c := range m.Changes {
		if c.Policy != m.Changes[0].Policy {
			return "#changes"
		}
	}
	return policyPath(m.Changes[0].Policy) + "/history"
}

// Words says what a mark stands for.
func (m mark) Words() string {
	c := m.Changes[0]
	text := fmt.Sprintf("%s UTC: %s of %s to version %d by %s",
		c.At.UTC().Format("2006-01-02 15:04"), c.Action, c.Policy, c.Version, c.Actor)
	if n := len(m.Changes) - 1; n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	return text
}

// slightest is the least height of a block, which can still be seen.
const slightest = 0.6

// chartOf draws traffic, with changes of policies and without the kinds of some classes.
func chartOf(t service.Traffic, changes []service.Marker, counted string, without ...string) chart {
	c := chart{Step: stepWords(t.Step), Seconds: int64(t.Step / time.Second), Counted: counted}
	total := figuresOf(t.Total)

	// A kind without requests would only explain a colour that is not there.
	for _, p := range total.Parts {
		if p.N > 0 && !slices.Contains(without, p.Class) {
			c.Shown = append(c.Shown, p.kind)
		}
	}

	highest := 0.0
	for _, p := range t.Points {
		c.Bars = append(c.Bars, barOf(p, t))
		highest = max(highest, float64(c.shownOf(figuresOf(p.Counts)))/seconds(p, t))
	}

	values := drawing.Ticks(highest)
	end := values[len(values)-1]
	for _, v := range values {
		c.Y = append(c.Y, axisTick{At: percent(100 - v/end*100), Words: drawing.Short(v)})
	}

	c.X, c.Marks = timeAxis(t), marksOf(t, changes)
	c.addAreas(t, end)
	c.Text = fmt.Sprintf("Steps of %s from %s to %s UTC: %s %s, at most %s a second. %s were refused, "+
		"%d changes of policies are marked. The numbers follow in a table.",
		c.Step, t.From.Format("2006-01-02 15:04"), t.To.Format("2006-01-02 15:04"), digits(total.All), counted,
		rate(highest), digits(total.Of("refused")), len(changes))

	return c
}

// shownOf returns how many requests are of the kinds that are shown.
func (c *chart) shownOf(f figures) (n int64) {
	for _, k := range c.Shown {
		n += f.Of(k.Class)
	}
	return n
}

// addAreas adds the areas, the highest first. end is the number at the top of the axis.
func (c *chart) addAreas(t service.Traffic, end float64) {
	heights := make([]float64, len(c.Bars)) // of the kinds up to the one that is added

	for _, k := range c.Shown {
		var path strings.Builder
		path.WriteString("M0 100")
		last := ""
		for i, b := range c.Bars {
			if n := b.Of(k.Class); n > 0 {
				heights[i] += max(slightest, float64(n)/seconds(t.Points[i], t)/end*100)
			}

			// Steps of one height are one line.
			if y := decimal(max(0, 100-heights[i])); y != last {
				if i > 0 {
					fmt.Fprintf(&path, "H%d", i)
				}
				path.WriteString("V" + y)
				last = y
			}
		}
		fmt.Fprintf(&path, "H%dV100z", len(c.Bars))
		c.Areas = append(c.Areas, area{k.Class, path.String()})
	}
	slices.Reverse(c.Areas)
}

// Scale maps the width of a unit for each bar, and a height of 100, onto 1 by 1.
func (c chart) Scale() string {
	return strconv.FormatFloat(1/float64(max(1, len(c.Bars))), 'f', 6, 64) + " .01"
}

// Kinds lists the kinds that are shown for the script: "passed Passed,refused Refused".
func (c chart) Kinds() string {
	var list []string
	for _, k := range c.Shown {
		list = append(list, k.Class+" "+k.Words)
	}
	return strings.Join(list, ",")
}

// Numbers lists the counts of a bar for the script, by kind, without those of 0.
func (c chart) Numbers(b bar) string {
	var list []string
	for _, k := range c.Shown {
		list = append(list, number(b.Of(k.Class)))
	}
	return strings.Join(list, " ")
}

// seconds returns how long a point has lasted.
func seconds(p service.Point, t service.Traffic) float64 {
	// Counts come up to some seconds late, which would be most of a short step.
	if past := t.Now.Sub(p.At); t.Step >= time.Minute && past >= time.Second && past < t.Step {
		return past.Seconds()
	}
	return t.Step.Seconds()
}

// barOf returns the bar of a point. The rate of a step that has not ended is that so far.
func barOf(p service.Point, t service.Traffic) bar {
	b := bar{ID: p.At.Unix() / int64(min(t.Step, time.Minute)/time.Second), From: p.At, To: p.At.Add(t.Step),
		figures: figuresOf(p.Counts)}
	b.Open = !t.Now.Before(b.From) && t.Now.Before(b.To)
	if t.Step < time.Minute { // the last counts of a short step come after its end
		b.Open = !t.Now.Before(b.From) && t.Now.Before(b.To.Add(stats.TensLate))
	}
	b.Rate = rate(float64(b.All) / seconds(p, t))
	return b
}

// timeAxis returns the ticks of the time axis.
func timeAxis(t service.Traffic) (list []axisTick) {
	at, step := drawing.TimeTicks(t.From, t.To)
	for i, when := range at {
		words := when.Format("15:04")
		if step >= 24*time.Hour || when.Hour() == 0 && when.Minute() == 0 {
			words = when.Format("2 Jan")
		}

		list = append(list, axisTick{place(t, when), words, i%2 == 1, when, step >= 24*time.Hour})
	}
	return list
}

// apart is how far the marks of changes are from each other at least, as a part of the range.
const apart = 0.03

// marksOf groups the changes by the step in which they were made, or by several where their marks
// would lie on each other.
func marksOf(t service.Traffic, changes []service.Marker) (list []mark) {
	near := max(1, int64(apart*float64(t.To.Sub(t.From))/float64(t.Step)))

	for _, m := range changes { // the newest first
		if m.At.Before(t.From) || !m.At.Before(t.To) {
			continue
		}

		// The changes are in order, so those of one mark follow each other.
		id := int64(m.At.Sub(t.From) / t.Step)
		if n := len(list); n > 0 && list[n-1].ID-id < near {
			list[n-1].Changes = append(list[n-1].Changes, m)
			continue
		}

		middle := t.From.Add(time.Duration(id)*t.Step + t.Step/2)
		list = append(list, mark{place(t, middle), id, []service.Marker{m}})
	}

	// Counted from the epoch, the id of a mark stays while the range moves on, and the script moves
	// its element.
	for i := range list {
		list[i].ID += t.From.Unix() / int64(t.Step/time.Second)
	}
	return list
}

// place returns where an instant is on the time axis.
func place(t service.Traffic, at time.Time) string {
	return percent(float64(at.Sub(t.From)) / float64(t.To.Sub(t.From)) * 100)
}

func percent(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) + "%" }

// decimal writes a height with one decimal at most.
func decimal(v float64) string { return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") }

// stepWords names a step.
func stepWords(d time.Duration) string {
	switch {
	case d < time.Minute:
		return plural(int64(d/time.Second), "second", "seconds")
	case d == time.Minute:
		return "a minute"
	case d == time.Hour:
		return "an hour"
	case d > time.Hour:
		return plural(int64(d/time.Hour), "hour", "hours")
	}
	return plural(int64(d/time.Minute), "minute", "minutes")
}
