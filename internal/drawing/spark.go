package drawing

import (
	"fmt"
	"strconv"
	"strings"
)

// The size of a sparkline, and of each of its bars.
const (
	SparkHeight = 24
	sparkStep   = 4
	sparkBar    = 3
)

// SparkWidth returns the width of a sparkline with so many bars.
func SparkWidth(bars int) int { return bars * sparkStep }

// Sparkline returns two paths of bars side by side: one for the whole of each value, and one
// for a part of it, from the ground. The highest bar is as high as the sparkline. A bar or a
// part that is not 0 can always be seen. Values below 0 count as 0, and a part above its whole
// is as high as that.
func Sparkline(whole, part []int64) (wholes, parts string) {
	highest := int64(1)
	for _, n := range whole {
		highest = max(highest, n)
	}

	var w, p sparkPath
	for i, n := range whole {
		high := sparkHigh(n, highest)
		w.bar(i, high)
		if i < len(part) {
			p.bar(i, min(high, sparkHigh(part[i], highest)))
		}
	}

	return w.String(), p.String()
}

// sparkHigh returns the height of a value, in tenths, so that equal texts are equal heights.
func sparkHigh(n, highest int64) int {
	if n <= 0 {
		return 0
	}
	return max(10, int(float64(n)/float64(highest)*SparkHeight*10+0.5))
}

// sparkPath is one line along the ground and around all bars, which takes half the bytes of a
// rectangle for each.
type sparkPath struct {
	strings.Builder
	at int // where the line is
}

func (s *sparkPath) bar(i, tenths int) {
	if tenths == 0 {
		return
	}

	x := i * sparkStep
	if s.Len() == 0 {
		fmt.Fprintf(s, "M%d %d", x, SparkHeight)
	} else {
		fmt.Fprintf(s, "h%d", x-s.at)
	}

	top := strconv.FormatFloat(float64(SparkHeight*10-tenths)/10, 'f', -1, 64)
	fmt.Fprintf(s, "V%sh%dV%d", top, sparkBar, SparkHeight)
	s.at = x + sparkBar
}
