package web

import (
	"fmt"
	"strconv"

	"github.com/headgate/headgate/policy/stats"
)

// The size of a chart.
const (
	chartWidth  = 300
	chartHeight = 80
	chartGap    = 2
)

// chart has a bar for each minute: requests that passed, and above them the others.
type chart struct {
	Bars []bar
	Max  int64
	Text string // for people who cannot see it
}

// bar is a rectangle of a chart.
type bar struct {
	X, Y, Width, Height float64
	Class               string
	Words               string // its title
}

// chartOf draws the minutes of a policy.
func chartOf(minutes []stats.Minute, name string) chart {
	var c chart
	for _, m := range minutes {
		c.Max = max(c.Max, m.Policies[name].Total())
	}
	wide := float64(chartWidth) / float64(max(1, len(minutes)))
	for i, m := range minutes {
		n := figuresOf(m.Policies[name])
		at := m.Start.Format("15:04")
		y := float64(chartHeight)
		for _, part := range []struct {
			class, words string
			n            int64
		}{
			{"passed", "passed", n.Passed}, {"degraded", "passed with a cheaper answer", n.Degraded}, {"shadowed", "over the limit, in shadow", n.Shadowed},
			{"overruled", "passed here and were refused by another policy", n.Overruled},
			{"refused", "refused", n.Refused + n.Left}, {"denied", "denied", n.Denied}, {"banned", "banned", n.Banned},
			{"failed", "undecided", n.Open + n.Closed},
		} {
			y = c.stack(float64(i)*wide, y, wide-chartGap, part.class, at+": "+strconv.FormatInt(part.n, 10)+" "+part.words, part.n)
		}
	}
	c.Text = fmt.Sprintf("Bars by the minute, the last %d minutes; the most in a minute is %d", len(minutes), c.Max)
	return c
}

// stack adds a bar that ends at y, and returns where it begins.
func (c *chart) stack(x, y, wide float64, class, words string, n int64) float64 {
	if n <= 0 || c.Max <= 0 {
		return y
	}
	high := max(1, float64(n)/float64(c.Max)*chartHeight)
	c.Bars = append(c.Bars, bar{x, max(0, y-high), wide, high, class, words})
	return max(0, y-high)
}
