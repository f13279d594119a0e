// This file reads and writes the text form of limits.

package core

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/textform"
)

// ParseLimit reads the text form of a limit: a quota and a period, then in any
// order the name of an algorithm (gcra unless given) and its options.
//
//	100/1m
//	100/1m burst=20
//	5/1m sliding-log
//	240/1h sliding-window segments=60
//	10/1s fixed-window aligned
//	1/100ms token-bucket burst=50
//	1000/1m debt=5000
//	20 concurrent ttl=30s
//	10000/month tz=Europe/Berlin start=15
//
// A period is a Go duration; "d" stands for 24 hours and a missing number for
// 1, so that "5/s" and "1000/d" are understood. A day, week, month or year is one of the
// calendar; see Limit.Calendar for its options. The error names every mistake in
// the text, and the limit is valid if there is none.
func ParseLimit(s string) (Limit, error) {
	l, errs := parseLimit(s)
	if len(errs) == 0 {
		if err := l.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return Limit{}, fmt.Errorf("limit %q: %w", textform.Clip(s), errors.Join(errs...))
	}
	return l, nil
}

// MustParseLimit is [ParseLimit] for a text that is known to be valid; it
// panics on an error.
func MustParseLimit(s string) Limit {
	l, err := ParseLimit(s)
	if err != nil {
		panic("headgate: " + err.Error())
	}
	return l
}

// parseLimit reads a limit, and returns every mistake in its form. It does not validate the limit.
func parseLimit(s string) (l Limit, errs []error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return l, []error{errors.New(`it is empty; write, say, "100/1m"`)}
	}

	quota, period, hasPeriod := strings.Cut(words[0], "/")
	var err error
	if l.Quota, err = strconv.ParseInt(quota, 10, 64); err != nil {
		errs = append(errs, fmt.Errorf("quota %q is not a whole number", textform.Clip(quota)))
	}

	if hasPeriod {
		// The name of a unit alone decides the algorithm: no other counts by the calendar.
		if _, named := parseUnit(period); named {
			l.Algorithm, l.Calendar = CalendarWindow, period
		} else if l.Period, err = parsePeriod("period", period); err != nil {
			errs = append(errs, err)
		}
	}

	seen, faults := l.parseWords(words[1:])
	errs = append(errs, faults...)

	// The options of a calendar may have come in any order. What is kept is its one text form,
	// because limits are compared by it.
	if l.Calendar != "" {
		if c, err := parseCalendar(l.Calendar); err != nil {
			errs = append(errs, err)
		} else {
			l.Calendar = c.String()
		}
	}

	if err := l.spanFault(words[0], hasPeriod, seen["ttl"]); err != nil {
		errs = append(errs, err)
	}
	return l, errs
}

// parseWords reads the words behind the quota and the period, and returns the kinds of those that
// it has seen, and every mistake.
func (l *Limit) parseWords(words []string) (seen map[string]bool, errs []error) {
	// A word that is not known lists those that are, and only the first such word.
	seen, listed := map[string]bool{}, false
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		kind := name
		// Two algorithms are a contradiction, whatever their names.
		if new(Algorithm).Parse(w) {
			kind = "algorithm"
		}
		if seen[kind] {
			errs = append(errs, fmt.Errorf("a second %q, %q", textform.Clip(kind), textform.Clip(w)))
			continue
		}
		seen[kind] = true

		err := l.parseWord(w, name, value)
		if errors.Is(err, errUnknownWord) && !listed {
			err = fmt.Errorf("%w; the words are %s, aligned, burst=, debt=, segments=, start=, ttl= and tz=",
				err, algorithmNames())
			listed = true
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return seen, errs
}

// spanFault returns the mistake in the period or the ttl of a text that begins
// with first, or nil.
func (l *Limit) spanFault(first string, hasPeriod, hasTTL bool) error {
	held := l.Leased()
	switch {
	case held && hasPeriod:
		return errors.New(`a concurrent limit has a ttl instead of a period: "20 concurrent ttl=30s"`)
	case held && !hasTTL:
		return fmt.Errorf(`a concurrent limit needs a ttl, how long an unrenewed lease stays held; write, say, `+
			`"%s concurrent ttl=30s"`, textform.Clip(first))
	case !held && hasTTL:
		return fmt.Errorf("ttl means nothing to %s", l.Algorithm)
	case !held && !hasPeriod:
		return fmt.Errorf(`%q has no period; write, say, "100/1m"`, textform.Clip(first))
	}
	return nil
}

// Parse sets a to the algorithm of that name, the inverse of String, and reports whether there
// is one. If there is none, it leaves a as it is.
func (a *Algorithm) Parse(name string) bool {
	for i := range algorithms {
		if name == algorithms[i].name() {
			*a = Algorithm(i)
			return true
		}
	}
	return false
}

// algorithmNames returns the names of all algorithms, as a list in a sentence.
func algorithmNames() string {
	names := make([]string, len(algorithms))
	for i := range algorithms {
		names[i] = algorithms[i].name()
	}
	return strings.Join(names, ", ")
}

var errUnknownWord = errors.New("unknown word")

// parseWord reads one word after the quota and period.
func (l *Limit) parseWord(word, name, value string) (err error) {
	if l.Algorithm.Parse(word) {
		return nil
	}

	switch {
	case word == "aligned":
		l.Aligned = true
	case name == "burst":
		l.Burst, err = parseCount(name, value)
	case name == "debt":
		l.Debt, err = parseCount(name, value)
	case name == "segments":
		var n int64
		n, err = parseCount(name, value)
		// Beyond the highest number Validate refuses it, and a larger one might not fit an int.
		l.Segments = int(min(n, maxSegments+1))
	case name == "tz" || name == "start":
		// The options follow the unit until the whole text is parsed as a calendar.
		if l.Calendar == "" {
			return fmt.Errorf(`%s is for a day, week, month or year: "10000/month tz=Europe/Berlin start=15"`, name)
		}
		l.Calendar += " " + word
	case name == "ttl":
		l.Period, err = parsePeriod(name, value)
	default:
		err = fmt.Errorf("%w %q", errUnknownWord, textform.Clip(word))
	}

	return err
}

// parseCount reads the value of an option that is a positive number.
func parseCount(name, value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%s %q is not a positive whole number", name, textform.Clip(value))
	}
	return n, nil
}

// parsePeriod reads a period; see [ParseLimit]. It may be 0, which Validate refuses.
func parsePeriod(name, s string) (time.Duration, error) {
	// A unit alone stands for one of it, as in 5/s.
	text := s
	if text != "" && text[0] != '.' && (text[0] < '0' || text[0] > '9') {
		text = "1" + text
	}

	// time.ParseDuration knows no days. The bound keeps the product within a Duration.
	if days, ok := strings.CutSuffix(text, "d"); ok {
		const day = 24 * time.Hour
		n, err := strconv.ParseInt(days, 10, 64)
		if err != nil || n > int64(MaxPeriod/day) {
			return 0, fmt.Errorf("%s %q is not a number of days up to %d", name, textform.Clip(s), MaxPeriod/day)
		}
		return time.Duration(n) * day, nil
	}

	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a duration such as 10s, 1m or 24h", name, textform.Clip(s))
	}
	return d, nil
}

// String returns the text that [ParseLimit] reads as the same limit.
func (l Limit) String() string {
	var b strings.Builder
	if l.Leased() {
		fmt.Fprintf(&b, "%d %s ttl=%s", l.Quota, l.Algorithm, textform.Duration(l.Period))
	} else {
		// The default algorithm and that of a calendar follow from the rest of the text.
		span := l.Calendar
		if span == "" {
			span = textform.Duration(l.Period)
		}
		fmt.Fprintf(&b, "%d/%s", l.Quota, span)
		if l.Algorithm != GCRA && l.Algorithm != CalendarWindow {
			b.WriteByte(' ')
			b.WriteString(l.Algorithm.String())
		}
	}

	if l.Aligned {
		b.WriteString(" aligned")
	}
	if l.Burst != 0 {
		fmt.Fprintf(&b, " burst=%d", l.Burst)
	}
	if l.Debt != 0 {
		fmt.Fprintf(&b, " debt=%d", l.Debt)
	}
	if l.Segments != 0 {
		fmt.Fprintf(&b, " segments=%d", l.Segments)
	}
	return b.String()
}

// MarshalText returns String, or an error if the limit is not valid.
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return []byte(l.String()), nil
}

// UnmarshalText reads what [ParseLimit] reads.
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := ParseLimit(string(text))
	if err != nil {
		return err
	}
	*l = parsed
	return nil
}
