package core

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/textform"
)

func TestLimitEqualLooksAtEveryField(t *testing.T) {
	// The numbers have the same bits, so that none can hide another that differs.
	full := Limit{Algorithm: FixedWindow, Quota: 1, Period: 1, Burst: 1, Segments: 1, Aligned: true, Debt: 1,
		Calendar: "day"}
	bare := full // most limits have no calendar, and are compared another way
	bare.Calendar = ""
	for _, base := range []Limit{full, bare} {
		same := base
		if !base.Equal(&same) {
			t.Errorf("%+v is not equal to its copy", base)
		}

		// The fields come by reflection: one that is added later and forgotten by Equal fails here.
		fields := reflect.TypeFor[Limit]()
		for i := range fields.NumField() {
			other := base
			reflect.ValueOf(&other).Elem().Field(i).SetZero()
			if other != base && (base.Equal(&other) || other.Equal(&base)) {
				t.Errorf("limits with another %s are equal: %+v", fields.Field(i).Name, base)
			}
		}
	}
}

func TestLimitTextRoundTrip(t *testing.T) {
	rows := []struct {
		text string
		want Limit
		out  string // "" if as text
	}{
		// Texts that are written as they were read.
		{"100/1m", Limit{Quota: 100, Period: time.Minute}, ""},
		{"100/1m burst=20", Limit{Quota: 100, Period: time.Minute, Burst: 20}, ""},
		{"5/1m sliding-log", Limit{Algorithm: SlidingLog, Quota: 5, Period: time.Minute}, ""},
		{"240/1h sliding-window segments=60", Limit{Algorithm: SlidingWindow, Quota: 240, Period: time.Hour,
			Segments: 60}, ""},
		{"240/1h sliding-window", Limit{Algorithm: SlidingWindow, Quota: 240, Period: time.Hour}, ""},
		{"10/1s fixed-window aligned",
			Limit{Algorithm: FixedWindow, Quota: 10, Period: time.Second, Aligned: true}, ""},
		{"10/1s fixed-window", Limit{Algorithm: FixedWindow, Quota: 10, Period: time.Second}, ""},
		{"1/100ms token-bucket burst=50", Limit{Algorithm: TokenBucket, Quota: 1, Period: 100 * time.Millisecond,
			Burst: 50}, ""},
		{"20 concurrent ttl=30s", Limit{Algorithm: Concurrency, Quota: 20, Period: 30 * time.Second}, ""},
		{"1000/1m debt=5000", Limit{Quota: 1000, Period: time.Minute, Debt: 5000}, ""},
		{"10/1s token-bucket burst=50 debt=7", Limit{Algorithm: TokenBucket, Quota: 10, Period: time.Second,
			Burst: 50, Debt: 7}, ""},
		{"240/1h sliding-window segments=60 debt=12", Limit{Algorithm: SlidingWindow, Quota: 240, Period: time.Hour,
			Debt: 12, Segments: 60}, "240/1h sliding-window debt=12 segments=60"},
		{"10/1s fixed-window aligned debt=3", Limit{Algorithm: FixedWindow, Quota: 10, Period: time.Second,
			Aligned: true, Debt: 3}, ""},
		{"10000/month", Limit{Algorithm: CalendarWindow, Quota: 10000, Calendar: "month"}, ""},
		{"10000/month start=15 debt=7 tz=Europe/Berlin", Limit{Algorithm: CalendarWindow, Quota: 10000,
			Calendar: "month tz=Europe/Berlin start=15", Debt: 7}, "10000/month tz=Europe/Berlin start=15 debt=7"},
		{"5/day calendar", Limit{Algorithm: CalendarWindow, Quota: 5, Calendar: "day"}, "5/day"},
		{"5/week tz=UTC start=01", Limit{Algorithm: CalendarWindow, Quota: 5, Calendar: "week"}, "5/week"},
		{"5/year start=04-06", Limit{Algorithm: CalendarWindow, Quota: 5, Calendar: "year start=04-06"}, ""},
		{"1/1ms", Limit{Quota: 1, Period: minPeriod}, ""},
		{"1/9600h", Limit{Quota: 1, Period: MaxPeriod}, ""},
		{"1/1h30m", Limit{Quota: 1, Period: 90 * time.Minute}, ""},
		{"1/1.5s", Limit{Quota: 1, Period: 1500 * time.Millisecond}, ""},
		{"1/1.000001s", Limit{Quota: 1, Period: time.Second + time.Microsecond}, ""},

		// Units are words too, and durations have many spellings but one text.
		{"5/s", Limit{Quota: 5, Period: time.Second}, "5/1s"},
		{"5/ms", Limit{Quota: 5, Period: time.Millisecond}, "5/1ms"},
		{"1000/d", Limit{Quota: 1000, Period: 24 * time.Hour}, "1000/24h"},
		{"1/400d", Limit{Quota: 1, Period: MaxPeriod}, "1/9600h"},
		{"10/.5s", Limit{Quota: 10, Period: 500 * time.Millisecond}, "10/500ms"},
		{"5/60s", Limit{Quota: 5, Period: time.Minute}, "5/1m"},

		// The default algorithm is not written, and words are put in order.
		{"5/1m gcra", Limit{Quota: 5, Period: time.Minute}, "5/1m"},
		{" 10/1s  aligned\tfixed-window\n", Limit{Algorithm: FixedWindow, Quota: 10, Period: time.Second,
			Aligned: true}, "10/1s fixed-window aligned"},
		{"20 ttl=30s concurrent", Limit{Algorithm: Concurrency, Quota: 20, Period: 30 * time.Second},
			"20 concurrent ttl=30s"},
	}

	for _, r := range rows {
		got, err := ParseLimit(r.text)
		if err != nil || got != r.want {
			t.Errorf("ParseLimit(%q) = %+v, %v", r.text, got, err)
			continue
		}

		if r.out == "" {
			r.out = r.text
		}
		if s := got.String(); s != r.out {
			t.Errorf("ParseLimit(%q).String() = %q", r.text, s)
		}
	}
}

// Without debt= a debt is as large as the capacity, or as what comes back in time.

func TestLimitMaxDebt(t *testing.T) {
	// The capacity is the default, up to the most that could be counted or paid back in 400 days: a
	// debt that is longer than that has no end to announce.
	for text, want := range map[string]int64{
		"100/1m":                            100,
		"100/1m burst=20":                   20,
		"100/1m burst=20 debt=7":            7,
		"100/1m burst=20 debt=7000":         7000,
		"10/1s token-bucket burst=50":       50,
		"10/1s fixed-window":                10,
		"10/1s sliding-window debt=3":       3,
		"5/1m sliding-log":                  0,
		"20 concurrent ttl=30s":             0,
		"1/400d":                            0,
		"3/300d":                            1,
		"3/300d token-bucket":               0,
		"4503599627370490/1s fixed-window":  11,
		"90071992547400/1ms sliding-window": 9,
	} {
		l := MustParseLimit(text)
		if got := l.MaxDebt(); got != want {
			t.Errorf("the debt of %s is %d, want %d", text, got, want)
		}
	}
}

func TestMustParseLimitPanicsOnAMistake(t *testing.T) {
	if got := MustParseLimit("5/1m"); got != (Limit{Quota: 5, Period: time.Minute}) {
		t.Errorf("%+v", got)
	}
	defer func() {
		if got := recover(); got == nil || !strings.Contains(got.(string), `limit "5": "5" has no period`) {
			t.Errorf("panic %v", got)
		}
	}()
	MustParseLimit("5")
}

func TestLimitErrorsNameEveryMistake(t *testing.T) {
	rows := []struct {
		text string
		want []string
	}{
		// What is no number or no period.
		{"", []string{"it is empty"}},
		{"x", []string{`quota "x" is not a whole number`, `"x" has no period`}},
		{"10", []string{`"10" has no period`}},
		{"1.5/1s", []string{`quota "1.5" is not a whole number`}},
		{"99999999999999999999/1s", []string{"is not a whole number"}},
		{"0/1s", []string{"quota 0 is not positive"}},
		{"-1/1s", []string{"quota -1 is not positive"}},
		{"1/", []string{`period "" is not a duration`}},
		{"1/5", []string{`period "5" is not a duration`}},
		{"1/-5s", []string{`period "-5s" is not a duration`}},
		{"1/401d", []string{"is not a number of days up to 400"}},
		{"1/1.5d", []string{"is not a number of days"}},
		{"1/0d", []string{"period 0s is below 1ms"}},
		{"1/999us", []string{"period 999µs is below 1ms"}},
		{"1/9601h", []string{"period 9601h is above 9600h"}},
		{"1/1000001ns", []string{"period 1.000001ms is not a whole number of microseconds"}},
		{"0/1us", []string{"quota 0 is not positive", "period 1µs is below 1ms"}},
		{"x/y z burst=a segments=-1", []string{`quota "x"`, `period "y"`, `unknown word "z"`, `burst "a"`,
			`segments "-1"`}},

		// Options that are wrong, given twice, or of another algorithm.
		{"1/1s burst=0", []string{`burst "0" is not a positive whole number`}},
		{"1/1s burst", []string{`burst "" is not a positive whole number`}},
		{"1/1s burst=1 burst=2", []string{`a second "burst", "burst=2"`}},
		{"1/1s gcra sliding-log", []string{`a second "algorithm", "sliding-log"`}},
		{"1/1s fixed-window burst=2 segments=3", []string{"burst means nothing to fixed-window",
			"segments mean nothing to fixed-window"}},
		{"1/1s aligned segments=3", []string{"aligned means nothing to gcra", "segments mean nothing to gcra"}},
		{"1/1s sliding-window segments=361", []string{"segments 361 is not within 1 to 360"}},
		{"1/1s sliding-window segments=9223372036854775807", []string{"segments 361 is not within"}},
		{"1/1s sliding-window segments=7", []string{"7 segments do not divide 1s into whole microseconds"}},
		{"1/1s sliding", []string{`unknown word "sliding"; the words are gcra, `, `, sliding-window, `,
			`, aligned, burst=, debt=, segments=, start=, ttl= and tz=`}},

		// The calendar's own faults come with it, and the options of other algorithms mean nothing
		// to it.
		{"10000/month start=31", []string{`calendar "month start=31": start "31" is not a day of each month, 1 to 28`}},
		{"10000/month tz=Mars/Olympus", []string{`tz "Mars/Olympus" is not in the time zone database`}},
		{"10000/month tz=UTC tz=UTC", []string{`a second "tz", "tz=UTC"`}},
		{"10000/month burst=5 segments=2 aligned", []string{"burst means nothing to calendar",
			"segments mean nothing to calendar", "aligned means nothing to calendar"}},
		{"10000/month gcra", []string{"a calendar means nothing to gcra"}},
		{"10000/month ttl=5s", []string{"ttl means nothing to calendar"}},
		{"10000/2months", []string{`period "2months" is not a duration`}},
		{"100/1m tz=Europe/Berlin",
			[]string{`tz is for a day, week, month or year: "10000/month tz=Europe/Berlin start=15"`}},
		{"100/1m calendar", []string{"period 1m0s means nothing to calendar"}},

		// Leases and logs, whose state grows with the quota.
		{"10 concurrent",
			[]string{`needs a ttl, how long an unrenewed lease stays held; write, say, "10 concurrent ttl=30s"`}},
		{"20 concurrent ttl=x", []string{`ttl "x" is not a duration`}},
		{"20/1s concurrent ttl=3s", []string{"has a ttl instead of a period"}},
		{"20/1s ttl=3s", []string{"ttl means nothing to gcra"}},
		{"10001 concurrent ttl=3s", []string{"quota 10001 is above 10000"}},
		{"1001/1s sliding-log", []string{"quota 1001 is above 1000", "use a sliding-window"}},

		// Debts, and numbers that the state could not hold: 2^53 is where a Lua number stops being
		// exact.
		{"1/1s debt=0", []string{`debt "0" is not a positive whole number`}},
		{"1/1s debt=1 debt=2", []string{`a second "debt", "debt=2"`}},
		{"5/1m sliding-log debt=3", []string{"debt means nothing to sliding-log"}},
		{"20 concurrent ttl=30s debt=3", []string{"debt means nothing to concurrent"}},
		{"1/300d debt=1", []string{"debt 1 is above 0, the most that can be counted or that comes back within 9600h"}},
		{"3/200d token-bucket debt=4", []string{"debt 4 is above 3, "}},
		{"4503599627370495/1s fixed-window debt=2", []string{"debt 2 is above 1, "}},
		{"1/400d burst=2", []string{"takes longer than 9600h to fill"}},
		{"1/400d token-bucket burst=2", []string{"takes 2 periods of 9600h to fill, longer than 9600h"}},
		{"9223372036854775807/1s", []string{"not both below 2^53"}},
		{"9223372036854775807/1s fixed-window", []string{"not below 2^53"}},
		{"9223372036854775807/1s token-bucket burst=9223372036854775807",
			[]string{"the sum of burst 9223372036854775807 and quota 9223372036854775807 is not below 2^53"}},
		{"9007199254740991/400d sliding-window", []string{"not below 2^53", "use more segments"}},
	}

	for _, r := range rows {
		got, err := ParseLimit(r.text)
		if err == nil {
			t.Errorf("ParseLimit(%q) = %+v", r.text, got)
			continue
		}

		for _, want := range r.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("ParseLimit(%q): %v, without %q", r.text, err, want)
			}
		}

		// A mistake leads to no more than a few lines, and a text with one never yields a limit.
		if lines := strings.Count(err.Error(), "\n") + 1; lines > 5 || got != (Limit{}) {
			t.Errorf("ParseLimit(%q) = %+v with %d lines of error", r.text, got, lines)
		}
	}
}

func TestLimitErrorsClipAndQuoteText(t *testing.T) {
	for _, text := range []string{strings.Repeat("9", 1e6), "1/1s " + strings.Repeat("x", 1e6),
		"1/1s \x1b[31m \x1b[31m", "1/1s a\xff"} {
		_, err := ParseLimit(text)
		if err == nil || len(err.Error()) > 1000 ||
			strings.Contains(err.Error(), "\x1b") || strings.Contains(err.Error(), "\xff") {
			t.Errorf("%q: error %.2000q", textform.Clip(text), err)
		}
	}
}

func TestLimitJSON(t *testing.T) {
	type config struct{ Limit Limit }

	// A limit is a string in JSON, the one that ParseLimit reads.
	in := config{Limit{Algorithm: TokenBucket, Quota: 4, Period: time.Second, Burst: 9}}
	text, err := json.Marshal(in)
	if want := `{"Limit":"4/1s token-bucket burst=9"}`; string(text) != want || err != nil {
		t.Errorf("Marshal = %s, %v", text, err)
	}

	var out config
	if err := json.Unmarshal(text, &out); err != nil || out != in {
		t.Errorf("Unmarshal = %+v, %v", out, err)
	}

	// The zero limit is not valid and is not written; a text that fails leaves what was there.
	if _, err := json.Marshal(config{}); err == nil {
		t.Error("the zero limit was written")
	}
	if err := json.Unmarshal([]byte(`{"Limit":"4"}`), &out); err == nil || out != in {
		t.Errorf("a bad text: %v, and %+v", err, out)
	}
}

func TestLimitUnknownAlgorithmIsNamedByNumber(t *testing.T) {
	if got := algorithmCount.String(); got != "algorithm(7)" {
		t.Errorf("String() = %q", got)
	}
	if err := (Limit{Algorithm: algorithmCount, Quota: 1, Period: time.Second}).Validate(); err == nil {
		t.Error("it is valid")
	}
}
