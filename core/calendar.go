package core

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/textform"
)

// calendar divides time into windows that begin with a day, week, month or year of a time
// zone. A window begins at the first instant at which a clock in the zone shows its first
// day, or a later day. So the windows are as long as the calendar and summer time make
// them, and a window that the zone has skipped does not exist.
type calendar struct {
	unit unit
	// month and day are those on which a window begins: day 1 to 7 of a week from Monday
	// on, day 1 to 28 of a month, or a month and a day of a year.
	month time.Month
	day   int
	zone  *time.Location
}

// unit is what the windows of a calendar begin with.
type unit uint8

const (
	day unit = iota
	week
	month
	year
	unitCount
)

var unitNames = [unitCount]string{"day", "week", "month", "year"}

// parseUnit returns the unit of that name.
func parseUnit(name string) (u unit, ok bool) {
	for u, n := range unitNames {
		if n == name {
			return unit(u), true
		}
	}
	return 0, false
}

// parseCalendar reads the text form of a calendar: day, week, month or year, then in any
// order its options.
//
//	day
//	week start=7
//	month tz=Europe/Berlin start=15
//	year start=04-06
//
// tz is a name of the IANA time zone database, and UTC unless given. start is the first
// day of a window, and the first of the unit unless given: 1 (Monday) to 7 of a week, 1
// to 28 of a month, or month and day of a year. A day that some months or years do not
// have is an error. The error names every mistake in the text.
//
// The rules of a zone come from the machine, or from package time/tzdata in a program that
// imports it.
func parseCalendar(text string) (*calendar, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, errors.New(`calendar: it is empty; write, say, "month"`)
	}

	// The unit is read first, because start= means something else under each. After an unknown
	// unit the options are still read, so that the error names their mistakes too.
	c := &calendar{month: time.January, day: 1, zone: time.UTC}
	var known bool
	var errs []error
	if c.unit, known = parseUnit(words[0]); !known {
		errs = append(errs, fmt.Errorf("unit %q is not day, week, month or year", textform.Clip(words[0])))
	}

	seen := map[string]bool{}
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		var err error
		switch {
		case seen[name]:
			err = fmt.Errorf("a second %q", textform.Clip(name))
		case name == "tz":
			c.zone, err = parseZone(value)
		case name == "start" && known:
			err = c.parseStart(value)
		case name != "start":
			err = fmt.Errorf("%w %q; the words are tz= and start=", errUnknownWord, textform.Clip(w))
		}
		seen[name] = true
		if err != nil {
			errs = append(errs, err)
		}
	}

	if len(errs) > 0 {
		return nil, fmt.Errorf("calendar %q: %w", textform.Clip(text), errors.Join(errs...))
	}
	return c, nil
}

// parseZone returns the zone of that name. The zone Local is refused, because it differs
// from machine to machine, and so are names that are another name's path.
func parseZone(name string) (*time.Location, error) {
	if name == "Local" || path.Clean(name) != name {
		return nil, fmt.Errorf(`tz %q is no name of a time zone; write, say, "tz=Europe/Berlin"`, textform.Clip(name))
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("tz %q is not in the time zone database of this machine; "+
			"a program that imports time/tzdata brings its own",
			textform.Clip(name))
	}
	return zone, nil
}

// parseStart reads the first day of a window.
func (c *calendar) parseStart(s string) error {
	switch c.unit {
	case day:
		return errors.New("start means nothing to day")
	case week:
		return c.parseDay(s, "a week", 7)
	case month:
		return c.parseDay(s, "each month", 28)
	}

	// No window may begin on a day that some years do not have.
	at, err := time.Parse("01-02", s) // in the year 0, which is a leap year
	switch {
	case err != nil:
		return fmt.Errorf(`start %q is not a month and a day of each year, such as "04-06"`, textform.Clip(s))
	case at.Month() == time.February && at.Day() == 29:
		return fmt.Errorf("start %q: not each year has that day", s)
	}
	c.month, c.day = at.Month(), at.Day()
	return nil
}

// parseDay reads the number of a day of a week or month.
func (c *calendar) parseDay(s, of string, last int) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > last {
		return fmt.Errorf("start %q is not a day of %s, 1 to %d", textform.Clip(s), of, last)
	}
	c.day = n
	return nil
}

// String returns the text that parseCalendar reads as the same calendar. It is the same
// for two calendars if and only if they are.
func (c *calendar) String() string {
	text := unitNames[c.unit]
	if c.zone != time.UTC {
		text += " tz=" + c.zone.String()
	}
	switch {
	case c.month != time.January || c.unit == year && c.day != 1:
		text += fmt.Sprintf(" start=%02d-%02d", c.month, c.day)
	case c.day != 1:
		text += fmt.Sprintf(" start=%d", c.day)
	}
	return text
}

// Windows are the boundaries of seven windows that follow each other, in microseconds
// since the Unix epoch. Window i begins at Windows[i] and ends before Windows[i+1]. Window
// 3 is the present one by the clock of the program.
type Windows [8]int64

// Ordered reports whether each window ends after it begins, and all lie within the instants that
// [Decide] counts exactly. It is false of nil.
func (w *Windows) Ordered() bool {
	return w != nil && 0 <= w[0] && w[0] < w[1] && w[1] < w[2] && w[2] < w[3] && w[3] < w[4] && w[4] < w[5] &&
		w[5] < w[6] && w[6] < w[7] && w[7] < exact
}

// present is the index of the present window among Windows.
const present = 3

// windowAt returns the beginning and the end of the window that holds the instant. ok is false
// if none does.
func (w *Windows) windowAt(now int64) (begin, end int64, ok bool) {
	if w == nil || now < w[0] {
		return 0, 0, false
	}
	for i := 1; i < len(w); i++ {
		if now < w[i] {
			return w[i-1], w[i], true
		}
	}
	return 0, 0, false
}

// windows returns the window that holds the instant at, in microseconds since the Unix
// epoch, between the three before and the three after it.
func (c *calendar) windows(at int64) (w Windows) {
	first := c.firstDayAt(at)
	w[present] = c.startOf(first)

	// A zone that skipped a day makes two windows begin at one instant. The first of them does
	// not exist, so its place is taken by the next.
	for n, i := 1, present+1; i < len(w); n++ {
		if w[i] = c.startOf(c.add(first, n)); w[i] > w[i-1] {
			i++
		}
	}

	for n, i := -1, present-1; i >= 0; n-- {
		if w[i] = c.startOf(c.add(first, n)); w[i] < w[i+1] {
			i--
		}
	}
	return w
}

// A date is the beginning of a day in UTC, which stands for the day of any zone.
type date = time.Time

// newDate returns the date of a day.
func newDate(y int, m time.Month, d int) date { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }

// firstDayAt returns the first day of the window that holds the instant.
func (c *calendar) firstDayAt(at int64) date {
	d := c.firstDayOf(newDate(time.UnixMicro(at).In(c.zone).Date()))
	// A clock that was set back may show a day of the window before.
	for next := c.add(d, 1); c.startOf(next) <= at; next = c.add(d, 1) {
		d = next
	}
	return d
}

// firstDayOf returns the first day of the window that holds the day.
func (c *calendar) firstDayOf(d date) date {
	switch c.unit {
	case week:
		// The days since the window began: 0 to 6.
		return d.AddDate(0, 0, -(int(d.Weekday())+7-c.day)%7)
	case month, year:
		first := newDate(d.Year(), d.Month(), c.day)
		if c.unit == year {
			first = newDate(d.Year(), c.month, c.day)
		}
		// The window of this month or year has not begun on that day.
		if first.After(d) {
			return c.add(first, -1)
		}
		return first
	}
	return d
}

// add returns the first day of the n-th window after the one that begins with d.
func (c *calendar) add(d date, n int) date {
	switch c.unit {
	case week:
		return d.AddDate(0, 0, 7*n)
	case month:
		return d.AddDate(0, n, 0)
	case year:
		return d.AddDate(n, 0, 0)
	}
	return d.AddDate(0, 0, n)
}

// farthest is more than a clock in any zone differs from UTC.
const farthest = 48 * time.Hour

// startOf returns the first instant at which a clock in the zone shows that day or a later
// one. It looks at the spans of equal time one after another, because a clock that is set
// ahead may never show midnight, and one that is set back may show it twice.
func (c *calendar) startOf(d date) int64 {
	t := d.Add(-farthest).In(c.zone)
	for {
		_, offset := t.Zone()
		midnight := d.Add(-time.Duration(offset) * time.Second)

		_, end := t.ZoneBounds()
		if !end.IsZero() && !end.After(t) {
			// Go 1.26 takes December 31 of a leap year for the year after where a zone's
			// rule, and no table, has the changes (go.dev/issue/81583). No rule changes
			// a clock on that day.
			end = t.Add(24 * time.Hour)
		}

		if midnight.Before(t) {
			midnight = t // the change with which the span begins has passed it
		}
		if end.IsZero() || midnight.Before(end) {
			return midnight.UnixMicro()
		}
		t = end
	}
}
