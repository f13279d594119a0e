// This file describes limits in words.

package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// Words returns a limit in words: "100 requests a minute, at most 20 at once". For a limit that is
// not valid it returns "not a valid limit".
func Words(l core.Limit) string {
	if l.Validate() != nil {
		return "not a valid limit"
	}
	return Volume(l, "request") + Manner(l) + Debt(l)
}

// Volume returns how much a valid limit allows, counted in a noun: "100 requests a minute".
func Volume(l core.Limit, noun string) string {
	n := strconv.FormatInt(l.Quota, 10) + " " + Plural(l.Quota, noun)
	switch {
	case l.Leased():
		return n + " at a time"
	case l.NeedsWindows():
		unit, _, _ := strings.Cut(l.Calendar, " ")
		return n + " a " + unit
	case l.Rolling():
		return n + " within any " + strings.TrimPrefix(Span(l.Period), "1 ")
	}
	return n + " " + rate(l.Period)
}

// Manner returns what a valid limit is apart from its rate, with a comma in front, or "":
// ", at most 20 at once".
func Manner(l core.Limit) string {
	switch {
	case l.NeedsWindows():
		return calendar(strings.Fields(l.Calendar))
	case l.Aligned:
		return ", counted in windows by the clock"
	case l.Windowed():
		return ", counted in windows that begin with a request"
	case l.SegmentCount() > 0:
		n := int64(l.SegmentCount())
		return fmt.Sprintf(", counted in %d %s", n, Plural(n, "segment"))
	case l.Burst == 0:
		return ""
	}

	return fmt.Sprintf(", at most %d at once", l.Burst)
}

// calendar describes the windows of a calendar by the words of its text.
func calendar(words []string) string {
	zone, start := "UTC", ""
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		if name == "tz" {
			zone = value
			continue
		}

		// The start of a year is a month and a day, that of a week a day from 1 for Monday, and
		// that of a month a day of it.
		start = ", each from day " + value + " on"
		if day, err := strconv.Atoi(value); err == nil && words[0] == "week" {
			start = ", each from " + time.Weekday(day%7).String() + " on"
		}
		if at, err := time.Parse("01-02", value); err == nil {
			start = ", each from " + at.Format("January 2") + " on"
		}
	}

	return ", by the calendar of " + zone + start
}

// Debt returns the debt that a limit states, with a comma in front, or "".
func Debt(l core.Limit) string {
	if l.Debt == 0 {
		return ""
	}
	return fmt.Sprintf(", at most %d in debt", l.Debt)
}

// rate returns, say, "a minute" or "every 10 seconds".
func rate(d time.Duration) string {
	switch d {
	case time.Second:
		return "a second"
	case time.Minute:
		return "a minute"
	case time.Hour:
		return "an hour"
	case 24 * time.Hour:
		return "a day"
	}
	return "every " + strings.TrimPrefix(Span(d), "1 ")
}

// Span writes d as a whole number of the largest unit that allows it: "90 seconds".
func Span(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{
		{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"},
		{time.Millisecond, "millisecond"},
	} {
		if n := int64(d / unit.size); d%unit.size == 0 {
			return fmt.Sprintf("%d %s", n, Plural(n, unit.name))
		}
	}

	// No limit has a smaller unit.
	n := int64(d / time.Microsecond)
	return fmt.Sprintf("%d %s", n, Plural(n, "microsecond"))
}

// Plural returns the noun for n of its things.
func Plural(n int64, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
