package core

import (
	"errors"
	"fmt"
	"time"
)

// calendarWindow counts units in the windows of a calendar, as fixedWindow does in its
// own. State.Slot and State.Mark are the beginning and the end of the window. They come
// from Op.Windows, because the rules of a time zone differ from machine to machine.
// Twin: lua/calendar_window.lua.
type calendarWindow struct{ fixedWindow }

func (*calendarWindow) name() string     { return "calendar" }
func (*calendarWindow) letter() string   { return "m" }
func (*calendarWindow) options() options { return options{calendar: true, debt: true} }

func (c *calendarWindow) check(l *Limit) error {
	parsed, err := parseCalendar(l.Calendar)
	if err != nil {
		return err
	}
	if text := parsed.String(); text != l.Calendar {
		return fmt.Errorf("calendar %q has to be written %q", l.Calendar, text)
	}
	return c.fixedWindow.check(l)
}

func (*calendarWindow) scriptArgs(l *Limit) (period, quota, extra int64) { return 0, l.Quota, 0 }

// settle leaves a window where it is, whatever the calendar of l, unless the clock has
// stepped back before it. Then the units count in the window that the clock is in.
func (*calendarWindow) settle(s *State, l *Limit, now int64) bool {
	if s.Used == 0 || s.Mark <= now {
		s.Limit, s.Used, s.Slot, s.Mark = *l, 0, 0, 0
		return false
	}
	begin, end, ok := s.windows.windowAt(now)
	if now >= s.Slot || !ok {
		return false
	}
	s.Slot, s.Mark = begin, min(end, s.Mark)
	return true
}

func (*calendarWindow) take(s *State, l *Limit, now, n int64, _ string) {
	if s.Used == 0 {
		s.Limit = *l
		s.Slot, s.Mark, _ = s.windows.windowAt(now)
	}
	s.Used += n
}

func (c *calendarWindow) debit(s *State, l *Limit, now, n int64) { c.take(s, l, now, n, "") }

// ErrWindows is wrapped by the error of a step whose instant, by the clock of the store, is
// in none of the [Windows] that came with an operation: that clock and the one of the
// program are more than three windows apart.
var ErrWindows = errors.New("the store's clock is in none of the calendar windows")

// CheckWindows returns an error that wraps [ErrWindows] if the operation needs windows and
// now is in none of them. A store calls it before [Decide].
func (op *Op) CheckWindows(now int64) error {
	if op.Limit.Algorithm != CalendarWindow {
		return nil // without a call
	}
	return op.checkWindows(now)
}

// checkWindows is CheckWindows for an operation under a calendar.
func (op *Op) checkWindows(now int64) error {
	w := op.Windows
	if w != nil && w[0] <= now && now < w[len(w)-1] || !op.needsWindows() {
		return nil
	}
	return fmt.Errorf("%w (%s, rule %q): it is at %s, and the program's clock at one in the window from %s to %s",
		ErrWindows, op.Verb, op.Rule, clockText(now), clockText(w[present]), clockText(w[present+1]))
}

// clockText writes an instant for readers of errors.
func clockText(at int64) string { return time.UnixMicro(at).UTC().Format(time.RFC3339) }

// needsWindows reports whether an operation under a calendar needs Op.Windows.
func (op *Op) needsWindows() bool {
	return op.Verb != Refund && op.Verb != Reset && op.Verb != Grant && op.Verb != Revoke
}

// windowsFault returns what is wrong with the windows of an operation under a calendar, or
// "".
func (op *Op) windowsFault() string {
	switch {
	case !op.needsWindows():
		return ""
	case op.Windows == nil:
		return "the windows of its calendar are missing"
	case !op.Windows.Ordered():
		return fmt.Sprintf("its windows %d are not in order", *op.Windows)
	}
	return ""
}

// maxRecords is 1, because the beginning of the window is one.
func (*calendarWindow) maxRecords(*Limit) int64 { return 1 }

func (*calendarWindow) compact(l *Limit) Compact { return Compact{form: inCalendar, capacity: l.Quota} }
