// This file is about limits with a calendar.

package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"
	_ "time/tzdata" // the tests are about zones that a machine may lack

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

// periodOf returns the period of a limit, or about the length of its windows.
func periodOf(l *core.Limit) time.Duration {
	shortest, longest := spansOf(l)
	return (shortest + longest) / 2
}

// spansOf returns the period of a limit twice, or bounds on the length of its windows.
func spansOf(l *core.Limit) (shortest, longest time.Duration) {
	if l.Algorithm != core.CalendarWindow {
		return l.Period, l.Period
	}

	const day = 24 * time.Hour
	switch l.Calendar[0] {
	case 'd':
		shortest, longest = day, day
	case 'w':
		shortest, longest = 7*day, 7*day
	case 'm':
		shortest, longest = 28*day, 31*day
	default:
		shortest, longest = 365*day, 366*day
	}
	return shortest - time.Hour, longest + time.Hour // by a change of summer time
}

// present holds the windows of calendars by their limits, because to compute them takes as
// long as many steps.
var present sync.Map

// windowsAt returns the windows of the limit's calendar around an instant.
func windowsAt(l *core.Limit, at int64) *core.Windows {
	if l.Algorithm != core.CalendarWindow {
		return nil
	}
	if known, ok := present.Load(*l); ok {
		if w := known.(*core.Windows); at >= w[3] && at < w[4] {
			return w
		}
	}
	w := l.Windows(at)
	present.Store(*l, w)
	return w
}

// turns are instants since Epoch at which months end, and at which the clocks of the zones
// below change.
var turns = func() (all []time.Duration) {
	for _, text := range []string{
		"2024-10-05T15:30:00Z",                         // Lord Howe, ahead by half an hour
		"2024-10-27T01:00:00Z", "2024-11-03T06:00:00Z", // Berlin and New York, back
		"2024-11-01T00:00:00Z", "2025-01-01T00:00:00Z", "2025-03-01T00:00:00Z",
		"2025-03-09T07:00:00Z", "2025-03-30T01:00:00Z", // New York and Berlin, ahead
		"2025-04-05T15:00:00Z", // Lord Howe, back
		"2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z",
	} {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			panic(err)
		}
		all = append(all, at.Sub(time.UnixMicro(Epoch)))
	}
	return all
}()

// drawTurn draws an instant within two days before or a day after a turn.
func drawTurn(t *rapid.T) int64 {
	turn := rapid.SampledFrom(turns).Draw(t, "turn").Microseconds()
	return Epoch + turn + rapid.Int64Range(-48*3600*1e6, 24*3600*1e6).Draw(t, "around")
}

// drawCalendar draws a limit with a calendar.
func drawCalendar(t *rapid.T) core.Limit {
	text := rapid.SampledFrom([]string{"day", "day", "week", "month", "year"}).Draw(t, "unit")

	// A week begins on a day of seven, and a month on one that every month has.
	start := 1
	switch text {
	case "week":
		start = rapid.IntRange(1, 7).Draw(t, "start")
	case "month":
		start = rapid.IntRange(1, 28).Draw(t, "start")
	}
	if start > 1 {
		text += fmt.Sprint(" start=", start)
	}

	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"}
	zone := rapid.SampledFrom(zones).Draw(t, "zone")
	quota := rapid.Int64Range(1, 20).Draw(t, "quota")
	l := limits(fmt.Sprintf("%d/%s tz=%s", quota, text, zone))[0]
	l.Debt = rapid.Int64Range(0, 30).Draw(t, "debt")
	return l
}

// calendars are the families of limits with a calendar.
func calendars() [][]core.Limit {
	return [][]core.Limit{
		limits("5/day", "7/day tz=Europe/Berlin", "5/day debt=2", "3/week start=6 tz=America/New_York",
			"9/month start=5 tz=Asia/Kathmandu", "9/year start=10-05"),
		limits("4/month", "4/month tz=Europe/Berlin start=28", "6/week tz=Australia/Lord_Howe",
			"2/day tz=America/New_York", "8/year tz=Europe/Berlin", "3/month start=15 debt=7"),
	}
}

// turn returns an instant within two days before or a day after a turn.
func (h *history) turn() time.Duration {
	around := h.r.Int64N(int64(72 * time.Hour / time.Microsecond))
	return pick(h.r, turns) - 48*time.Hour + time.Duration(around)*time.Microsecond
}

// byCalendar reports whether a rule of the history has a calendar.
func (h *history) byCalendar() bool {
	return slices.ContainsFunc(h.rules, func(r ruleOfHistory) bool {
		return r.limit.Algorithm == core.CalendarWindow
	})
}

// skew returns by how much the clock of a client is off. Days are the shortest windows, of
// which a client sends three before and after its own.
func (h *history) skew() time.Duration {
	const day = 24 * time.Hour
	return pick(h.r, []time.Duration{0, 0, time.Second, -time.Hour, day, -day, 2 * day, -2 * day})
}
