package web

import (
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/internal/drawing"
)

// chart is a bar for each step of a range, as high as the requests a second in it. Places are
// in percent, so that a chart fits any width without a change of its text and lines.
type chart struct {
	Y, X    []axisTick
	Bars    []bar
	Marks   []mark
	Shown   []kind // that have requests
	Text    string // for people who cannot see it
	Step    string
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
	Late     bool // its tip is on the left
	Open     bool // the step has not ended
	Rate     string
	figures
	Blocks []block
}

// block is a part of a bar.
type block struct{ Class, Y, Height string }

// mark has the changes of policies in a step.
type mark struct {
	At      string
	ID      int64
	Changes []service.Marker
}

// Link leads to the history of the policy that was changed last.
func (m mark) Link() string { return policyPath(m.Changes[0].Policy) + "/history" }

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

// chartOf draws traffic, with changes of policies.
func chartOf(t service.Traffic, changes []service.Marker, counted string) chart {
	c := chart{Step: stepWords(t.Step), Counted: counted}
	highest, total := 0.0, figuresOf(t.Total)

	// The legend has the kinds that there are. A kind without requests would only explain a colour
	// that is not there.
	for _, p := range total.Parts {
		if p.N > 0 {
			c.Shown = append(c.Shown, p.kind)
		}
	}

	for _, p := range t.Points {
		highest = max(highest, float64(p.Counts.Total())/seconds(p, t))
	}

	values := drawing.Ticks(highest)
	end := values[len(values)-1]
	for _, v := range values {
		c.Y = append(c.Y, axisTick{At: percent(100 - v/end*100), Words: drawing.Short(v)})
	}

	// The tip of a bar in the right half opens to the left, so that it stays within the chart.
	for i, p := range t.Points {
		c.Bars = append(c.Bars, barOf(p, t, end, 2*i >= len(t.Points)))
	}

	c.X, c.Marks = timeAxis(t), marksOf(t, changes)
	c.Text = fmt.Sprintf("Bars of %s from %s to %s UTC: %s %s, at most %s a second. %s were refused, "+
		"%d changes of policies are marked. The numbers follow in a table.",
		c.Step, t.From.Format("2006-01-02 15:04"), t.To.Format("2006-01-02 15:04"), digits(total.All), counted,
		rate(highest), digits(total.Of("refused")), len(changes))

	return c
}

// seconds returns how long a point has lasted.
func seconds(p service.Point, t service.Traffic) float64 {
	if past := t.Now.Sub(p.At); past >= time.Second && past < t.Step {
		return past.Seconds()
	}
	return t.Step.Seconds()
}

// barOf returns the bar of a point. end is the number at the top of the axis. late says that the
// bar is in the right half.
func barOf(p service.Point, t service.Traffic, end float64, late bool) bar {
	b := bar{ID: p.At.Unix() / 60, From: p.At, To: p.At.Add(t.Step), Late: late, figures: figuresOf(p.Counts)}
	b.Open = !t.Now.Before(b.From) && t.Now.Before(b.To)

	// The bar of the step that has not ended is as high as its rate so far.
	long := seconds(p, t)
	b.Rate = rate(float64(b.All) / long)

	// The blocks are stacked from the ground, which is at 100 percent.
	top := 100.0
	for _, part := range b.Parts {
		if part.N == 0 {
			continue
		}

		high := max(slightest, float64(part.N)/long/end*100)
		top -= high
		b.Blocks = append(b.Blocks, block{part.Class, percent(max(0, top)), percent(high)})
	}

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

// marksOf groups the changes by the step in which they were made.
func marksOf(t service.Traffic, changes []service.Marker) (list []mark) {
	for _, m := range changes { // the newest first
		if m.At.Before(t.From) || !m.At.Before(t.To) {
			continue
		}

		// The changes are in order, so those of one step follow each other.
		id := int64(m.At.Sub(t.From) / t.Step)
		if n := len(list); n > 0 && list[n-1].ID == id {
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

// stepWords names a step.
func stepWords(d time.Duration) string {
	switch {
	case d == time.Minute:
		return "a minute"
	case d == time.Hour:
		return "an hour"
	case d > time.Hour:
		return plural(int64(d/time.Hour), "hour", "hours")
	}
	return plural(int64(d/time.Minute), "minute", "minutes")
}
