// Package explain says in words and numbers what a limit does. [Limit] explains one, and [Words] is
// its sentence alone.
package explain

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/drawing"
	"github.com/headgate/headgate/internal/textform"
)

// Explanation is what a limit does.
type Explanation struct {
	Limit  string     `json:"limit"`
	Words  string     `json:"words"`
	AtMost string     `json:"at_most"`
	Admits []Admitted `json:"admits"`
}

// Admitted is what the limit has admitted a caller that never stops asking.
type Admitted struct {
	After string `json:"after"`
	Units int64  `json:"units"`
}

// Limit explains a valid limit.
func Limit(l core.Limit) Explanation {
	x := Explanation{Limit: l.String(), Words: Words(l), AtMost: atMost(l), Admits: []Admitted{}}

	// A limit that is not about time has no rows.
	for _, row := range drawing.Table(l) {
		after := "at once"
		if row.After > 0 {
			after = "after " + textform.Duration(row.After)
		}
		x.Admits = append(x.Admits, Admitted{after, row.Units})
	}
	return x
}

// atMost says what the limit admits at most in any span of one period.
func atMost(l core.Limit) string {
	period := textform.Duration(l.Period)
	if l.NeedsWindows() {
		unit, _, _ := strings.Cut(l.Calendar, " ")
		period = "one " + unit
	}

	// The order is that of the traits: a window is known before its parts.
	switch {
	case l.Leased():
		return fmt.Sprintf("%d at any time; one that is not renewed ends after %s", l.Quota, period)
	case l.NeedsWindows(), l.Windowed():
		return fmt.Sprintf("%d in any span of %s, around the end of a window", 2*l.Quota, period)
	case l.SegmentCount() > 0:
		return fmt.Sprintf("%d in any span of %s, and what one of its %d parts held", l.Quota, period, l.SegmentCount())
	case l.Rolling():
		return fmt.Sprintf("%d in any span of %s", l.Quota, period)
	}

	return fmt.Sprintf("%d in any span of %s: %d at once, and %d that come back meanwhile",
		l.Capacity()+l.Quota, period, l.Capacity(), l.Quota)
}
