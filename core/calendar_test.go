package core_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
)

// mustCalendar returns a limit with that calendar.
func mustCalendar(t testing.TB, text string) core.Limit {
	t.Helper()
	return mustParse(t, "1/"+strings.TrimSpace(text))
}

func TestParseCalendar(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"day", "day"},
		{"day tz=Asia/Kathmandu", "day tz=Asia/Kathmandu"},
		{"week", "week"},

		// What is the default is left out: a start of 1, the zone UTC.
		{"week start=1", "week"},
		{"week start=7 tz=America/New_York", "week tz=America/New_York start=7"},
		{" month\ttz=UTC ", "month"},
		{"month start=15 tz=Europe/Berlin", "month tz=Europe/Berlin start=15"},
		{"month start=028", "month start=28"},
		{"year", "year"},
		{"year start=01-01", "year"},
		{"year start=01-02", "year start=01-02"},
		{"year start=12-31", "year start=12-31"},
		{"year start=04-06 tz=Europe/London", "year tz=Europe/London start=04-06"},
	} {
		c := mustCalendar(t, row.text)
		if got := c.Calendar; got != row.want {
			t.Errorf("%q is written %q, want %q", row.text, got, row.want)
		}

		// Stores compare the texts of limits: a text that changed when it was read again would look
		// like a changed limit.
		if again := mustCalendar(t, c.Calendar); again != c {
			t.Errorf("%q is written %q and then %q", row.text, c, again)
		}
	}
}

func TestParseCalendarErrorsNameEveryMistake(t *testing.T) {
	for _, row := range []struct {
		text  string
		wants []string
	}{
		{"", []string{"it is empty"}},
		{"fortnight", []string{`unit "fortnight" is not day, week, month or year`}},
		{"months start=3 tz=Mars/Olympus now", []string{`unit "months" is not`,
			`tz "Mars/Olympus" is not in the time zone database`, `unknown word "now"`}},

		// A start that some month or year lacks would leave a window without a begin.
		{"month start=31", []string{`start "31" is not a day of each month, 1 to 28`}},
		{"month start=29", []string{`1 to 28`}},
		{"month start=0", []string{`1 to 28`}},
		{"month start=02-03", []string{`1 to 28`}},
		{"week start=8", []string{`start "8" is not a day of a week, 1 to 7`}},
		{"week start=mon", []string{`1 to 7`}},
		{"day start=1", []string{"start means nothing to day"}},
		{"year start=02-31", []string{`start "02-31" is not a month and a day of each year`}},
		{"year start=02-29", []string{`start "02-29": not each year has that day`}},
		{"year start=13-01", []string{`start "13-01" is not`}},
		{"year start=4", []string{`start "4" is not`}},

		// Local would be another zone on another machine, and a path must not leave the database's
		// directory.
		{"month tz=", []string{`tz "" is no name of a time zone`}},
		{"month tz=Local", []string{`tz "Local" is no name of a time zone`}},
		{"month tz=../etc/passwd", []string{`tz "../etc/passwd" is not in`}},
		{"month tz=Europe/./Berlin", []string{`tz "Europe/./Berlin" is no name of a time zone`}},
		{"month tz=Europe//Berlin", []string{`tz "Europe//Berlin" is no name of a time zone`}},
		{"month tz=Europe/Atlantis", []string{
			`is not in the time zone database of this machine; a program that imports time/tzdata brings its own`}},

		// A text that is sound, but not the one way to write it.
		{"month start=01 tz=UTC", []string{`calendar "month start=01 tz=UTC" has to be written "month"`}},
		{"month tz=UTC tz=UTC start=1 start=2", []string{`a second "tz"`, `a second "start"`}},
	} {
		err := core.Limit{Algorithm: core.CalendarWindow, Quota: 1, Calendar: row.text}.Validate()
		if err == nil {
			t.Errorf("%q: no error", row.text)
			continue
		}
		for _, want := range row.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", row.text, err, want)
			}
		}
	}
}

func instant(t testing.TB, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}

// Each row has the boundaries of windows 2 to 5 in UTC. The instant lies in window 3.
func TestCalendarWindows(t *testing.T) {
	for _, row := range []struct{ name, calendar, at, want string }{
		// Lengths that differ: months, leap years, and starts within them.
		{"a day", "day", "2026-11-23T06:00:00Z",
			"2026-11-22T00 2026-11-23T00 2026-11-24T00 2026-11-25T00 2026-11-26T00"},
		{"the end of February", "day", "2023-02-28T12:00:00Z",
			"2023-02-27T00 2023-02-28T00 2023-03-01T00 2023-03-02T00 2023-03-03T00"},
		{"the end of February in a leap year", "day", "2024-02-28T12:00:00Z",
			"2024-02-27T00 2024-02-28T00 2024-02-29T00 2024-03-01T00 2024-03-02T00"},
		{"2100 is no leap year", "month", "2100-02-10T00:00:00Z",
			"2100-01-01T00 2100-02-01T00 2100-03-01T00 2100-04-01T00 2100-05-01T00"},
		{"a week begins on Monday", "week", "2027-01-01T00:00:00Z",
			"2026-12-21T00 2026-12-28T00 2027-01-04T00 2027-01-11T00 2027-01-18T00"},
		{"a week that begins on Sunday", "week start=7", "2026-11-22T00:00:00Z",
			"2026-11-15T00 2026-11-22T00 2026-11-29T00 2026-12-06T00 2026-12-13T00"},
		{"a month", "month", "2026-12-31T23:59:59Z",
			"2026-11-01T00 2026-12-01T00 2027-01-01T00 2027-02-01T00 2027-03-01T00"},
		{"a month from the 28th", "month start=28", "2024-02-29T00:00:00Z",
			"2024-01-28T00 2024-02-28T00 2024-03-28T00 2024-04-28T00 2024-05-28T00"},
		{"the day before a month begins", "month start=15", "2026-01-14T23:59:59Z",
			"2025-11-15T00 2025-12-15T00 2026-01-15T00 2026-02-15T00 2026-03-15T00"},
		{"a year", "year", "2024-12-31T00:00:00Z",
			"2023-01-01T00 2024-01-01T00 2025-01-01T00 2026-01-01T00 2027-01-01T00"},
		{"a year from a day on", "year start=04-06", "2024-04-05T23:59:59Z",
			"2022-04-06T00 2023-04-06T00 2024-04-06T00 2025-04-06T00 2026-04-06T00"},

		{"summer time begins, days", "day tz=Europe/Berlin", "2026-03-29T10:00:00Z",
			"2026-03-27T23 2026-03-28T23 2026-03-29T22 2026-03-30T22 2026-03-31T22"},
		{"summer time ends, days", "day tz=Europe/Berlin", "2026-10-25T10:00:00Z",
			"2026-10-23T22 2026-10-24T22 2026-10-25T23 2026-10-26T23 2026-10-27T23"},
		{"summer time begins, weeks", "week tz=Europe/Berlin", "2026-03-29T21:59:59Z",
			"2026-03-15T23 2026-03-22T23 2026-03-29T22 2026-04-05T22 2026-04-12T22"},
		{"summer time ends, weeks", "week tz=Europe/Berlin", "2026-10-25T22:59:59Z",
			"2026-10-11T22 2026-10-18T22 2026-10-25T23 2026-11-01T23 2026-11-08T23"},
		{"summer time begins, months", "month tz=Europe/Berlin start=15", "2026-03-20T00:00:00Z",
			"2026-02-14T23 2026-03-14T23 2026-04-14T22 2026-05-14T22 2026-06-14T22"},
		{"summer time ends, months", "month tz=Europe/Berlin", "2026-10-31T22:59:59Z",
			"2026-08-31T22 2026-09-30T22 2026-10-31T23 2026-11-30T23 2026-12-31T23"},
		{"summer time and years", "year tz=Europe/London start=04-06", "2026-05-01T00:00:00Z",
			"2025-04-05T23 2026-04-05T23 2027-04-05T23 2028-04-05T23 2029-04-05T23"},
		{"a year begins by summer or winter time", "year tz=Europe/London start=03-29", "2026-05-01T00:00:00Z",
			"2025-03-29T00 2026-03-29T00 2027-03-28T23 2028-03-28T23 2029-03-28T23"},
		{"west of UTC", "month tz=America/New_York", "2026-11-01T03:59:59Z",
			"2026-09-01T04 2026-10-01T04 2026-11-01T04 2026-12-01T05 2027-01-01T05"},

		{"no midnight on the day", "day tz=America/Sao_Paulo", "2018-11-04T03:00:00Z",
			"2018-11-03T03 2018-11-04T03 2018-11-05T02 2018-11-06T02 2018-11-07T02"},
		{"no midnight on the day after", "day tz=America/Sao_Paulo", "2018-11-04T02:59:59Z",
			"2018-11-02T03 2018-11-03T03 2018-11-04T03 2018-11-05T02 2018-11-06T02"},
		{"24 o'clock twice", "day tz=America/Sao_Paulo", "2018-02-18T02:30:00Z",
			"2018-02-16T02 2018-02-17T02 2018-02-18T03 2018-02-19T03 2018-02-20T03"},
		{"midnight twice", "day tz=America/Havana", "2018-11-04T05:30:00Z",
			"2018-11-03T04 2018-11-04T04 2018-11-05T05 2018-11-06T05 2018-11-07T05"},
		{"a minute after midnight the clock shows the day before again", "day tz=America/St_Johns",
			"2010-11-07T03:00:00Z",
			"2010-11-06T02:30 2010-11-07T02:30 2010-11-08T03:30 2010-11-09T03:30 2010-11-10T03:30"},
		{"the last day of a leap year far ahead", "day tz=Europe/Berlin", "2040-12-31T12:00:00Z",
			"2040-12-29T23 2040-12-30T23 2040-12-31T23 2041-01-01T23 2041-01-02T23"},
		{"half an hour of summer time", "day tz=Australia/Lord_Howe", "2026-04-04T15:00:00Z",
			"2026-04-03T13 2026-04-04T13 2026-04-05T13:30 2026-04-06T13:30 2026-04-07T13:30"},
		{"a skipped day", "day tz=Pacific/Apia", "2011-12-30T09:59:59Z",
			"2011-12-28T10 2011-12-29T10 2011-12-30T10 2011-12-31T10 2012-01-01T10"},
		{"the day after a skipped day", "day tz=Pacific/Apia", "2011-12-30T10:00:00Z",
			"2011-12-29T10 2011-12-30T10 2011-12-31T10 2012-01-01T10 2012-01-02T10"},
		{"a month that begins with a skipped day", "month tz=Pacific/Kwajalein start=21", "1993-08-21T12:00:00Z",
			"1993-07-21T12 1993-08-21T12 1993-09-20T12 1993-10-20T12 1993-11-20T12"},
		{"a repeated day", "day tz=Pacific/Kwajalein", "1969-10-01T11:00:00Z",
			"1969-09-28T13 1969-09-29T13 1969-10-01T12 1969-10-02T12 1969-10-03T12"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var want [5]int64
			for i, text := range strings.Fields(row.want) {
				if !strings.Contains(text, ":") {
					text += ":00"
				}
				want[i] = instant(t, text+":00Z")
			}

			// The first and the last instant of window 3 find the same windows as the one within
			// it: a boundary off by a microsecond would shift all by one.
			c := mustCalendar(t, row.calendar)
			for _, at := range []int64{instant(t, row.at), want[1], want[2] - 1} {
				if got := c.Windows(at)[2:7]; [5]int64(got) != want {
					t.Errorf("the windows around %s are\n%s, want\n%s", time.UnixMicro(at).UTC(), show(got),
						show(want[:]))
				}
			}
		})
	}
}

func show(w []int64) string {
	var all []string
	for _, at := range w {
		all = append(all, time.UnixMicro(at).UTC().Format(time.RFC3339Nano))
	}
	return strings.Join(all, " ")
}

// zones are those of the property: on both hemispheres, with changes at any hour of the
// day, of half an hour and of a day, and without any.
var zones = strings.Fields(`UTC Europe/Berlin Europe/London Europe/Lisbon Atlantic/Azores Africa/Cairo Africa/Casablanca
	Asia/Beirut Asia/Gaza Asia/Tehran Asia/Kolkata Asia/Kathmandu Asia/Manila Asia/Pyongyang Asia/Amman America/New_York
	America/St_Johns America/Goose_Bay America/Havana America/Sao_Paulo America/Asuncion America/Santiago America/Scoresbysund
	America/Caracas Australia/Lord_Howe Australia/Sydney Pacific/Apia Pacific/Fakaofo Pacific/Kwajalein Pacific/Kiritimati
	Pacific/Chatham Antarctica/Troll`)

// The windows agree with those that a walk through the zone's days finds.
func TestCalendarWindowsProperty(t *testing.T) {
	t.Run("300 calendars", func(t *testing.T) { playWindows(t, 3, 300) })
	t.Run("long", func(t *testing.T) {
		test.Long(t, "it walks through 1,000 calendars more, or as many as HEADGATE_HISTORIES says")
		runs := 1000
		if text := os.Getenv("HEADGATE_HISTORIES"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatalf("HEADGATE_HISTORIES is %q, not a number", text)
			}
			runs = n
		}

		playWindows(t, 18, runs)
	})
}

func playWindows(t *testing.T, seed uint64, runs int) {
	r := rand.New(rand.NewPCG(18, seed))
	for range runs {
		text := randomCalendar(r)
		c := mustCalendar(t, text)
		at := randomInstant(r, c, text)
		got := *c.Windows(at)

		// Decide relies on it: window 3 is the one that the instant lies in.
		if at < got[3] || at >= got[4] {
			t.Fatalf("%s: %s is not in window 3 of\n%s", text, time.UnixMicro(at).UTC(), show(got[:]))
		}

		// The walk shares no code with what it checks.
		if want := walk(t, text, at); got != want {
			t.Fatalf("%s: the windows around %s are\n%s, and a walk finds\n%s", text, time.UnixMicro(at).UTC(),
				show(got[:]), show(want[:]))
		}
	}
}

func randomCalendar(r *rand.Rand) string {
	zone := zones[r.IntN(len(zones))]
	switch n := r.IntN(100); {
	case n < 50:
		return "day tz=" + zone
	case n < 75:
		return fmt.Sprintf("week tz=%s start=%d", zone, 1+r.IntN(7))
	case n < 98:
		return fmt.Sprintf("month tz=%s start=%d", zone, 1+r.IntN(28))
	}
	return fmt.Sprintf("year tz=%s start=%02d-%02d", zone, 1+r.IntN(12), 1+r.IntN(28))
}

// randomInstant returns an instant from 1968 to 2068, half of the time near a change of the
// zone's clock, or within a microsecond of a boundary.
func randomInstant(r *rand.Rand, c core.Limit, text string) int64 {
	first, last := int64(-2*365*86400), int64(98*365*86400)
	at := time.Unix(first+r.Int64N(last-first), 0).In(zoneOf(text))
	if _, end := at.ZoneBounds(); r.IntN(2) == 0 && !end.IsZero() {
		at = end.Add(time.Duration(r.Int64N(int64(72*time.Hour))) - 36*time.Hour)
	}
	if r.IntN(4) == 0 {
		return c.Windows(at.UnixMicro())[4] + r.Int64N(3) - 1
	}
	return at.UnixMicro()
}

func zoneOf(text string) *time.Location {
	_, rest, _ := strings.Cut(text, " tz=")
	name, _, _ := strings.Cut(rest, " ")
	zone, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return zone
}

// walk finds the windows around an instant as a clerk with a clock would: it goes hour by
// hour, and by minutes where the day changes, and opens a new window whenever the clock
// shows, for the first time, a day on or after the first of the next window.
func walk(t *testing.T, text string, at int64) core.Windows {
	t.Helper()
	zone, key := zoneOf(text), windowKey(text)
	longest := map[string]time.Duration{"day": 60 * time.Hour, "week": 9 * 24 * time.Hour,
		"month": 33 * 24 * time.Hour, "year": 368 * 24 * time.Hour}

	unit, _, _ := strings.Cut(text, " ")
	center := time.UnixMicro(at).Truncate(time.Hour)
	begin, end := center.Add(-5*longest[unit]), center.Add(6*longest[unit])

	// It begins five windows before and goes six beyond, as it needs four before the instant and
	// three after it.
	var begins []int64
	latest := key(begin.In(zone))

	look := func(now time.Time) {
		if k := key(now.In(zone)); k > latest {
			latest = k
			begins = append(begins, now.UnixMicro())
		}
	}

	for now := begin; now.Before(end); now = now.Add(time.Hour) {
		// A clock that was set back shows the change of its day again within three hours.
		if now.In(zone).Day() != now.Add(4*time.Hour).In(zone).Day() {
			for minute := range time.Duration(60) {
				look(now.Add(minute * time.Minute))
			}
		} else {
			look(now)
		}
	}

	// The window that the instant lies in becomes window 3 of eight.
	for i := 4; i+3 < len(begins); i++ {
		if at < begins[i] {
			return core.Windows(begins[i-4 : i+4])
		}
	}
	t.Fatalf("%s: the walk from %s found %d windows", text, begin, len(begins))
	return core.Windows{}
}

// windowKey returns a function that numbers the windows by the day that a clock shows.
func windowKey(text string) func(time.Time) int {
	var unit, zone string
	var month, day int
	text = strings.NewReplacer("tz=", "", "start=", "").Replace(text)
	if n, _ := fmt.Sscanf(text, "%s %s %d-%d", &unit, &zone, &month, &day); n == 3 {
		day, month = month, 0
	}

	// A week is numbered by the days since a Thursday, a month or a year by the one in which it
	// began.
	return func(at time.Time) int {
		y, m, d := at.Date()
		days := int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400) // day 0 is a Thursday
		switch unit {
		case "week":
			return (days + 7004 - day) / 7
		case "month":
			if d < day {
				m--
			}
			return 12*y + int(m)
		case "year":
			if int(m) < month || int(m) == month && d < day {
				y--
			}
			return y
		}
		return days
	}
}
