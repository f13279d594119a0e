// This file reads and writes the text form of bans.

package core

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/textform"
)

// ParseBan reads the text form of a ban: how many refusals within how long begin one, how
// long the first lasts, and how long any lasts at most.
//
//	20/1m for 10m max 24h
//
// The three stand in any order, and each once. Times are written as in [ParseLimit]. The error
// names every mistake in the text, and the ban is valid if there is none.
func ParseBan(s string) (Ban, error) {
	b, errs := parseBan(strings.Fields(s))
	if len(errs) == 0 {
		if err := b.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return Ban{}, fmt.Errorf("ban %q: %w", textform.Clip(s), errors.Join(errs...))
	}
	return b, nil
}

// MustParseBan is [ParseBan] for a text that is known to be valid; it panics on an error.
func MustParseBan(s string) Ban {
	b, err := ParseBan(s)
	if err != nil {
		panic("headgate: " + err.Error())
	}
	return b
}

// parseBan reads the words of a ban, and returns every mistake in them. It does not validate the
// numbers.
func parseBan(words []string) (b Ban, errs []error) {
	if len(words) == 0 {
		return b, []error{errors.New(`it is empty; write, say, "20/1m for 10m max 24h"`)}
	}

	seen := map[string]bool{}
	for len(words) > 0 {
		// The words for and max take the word after them, also if that is missing.
		name, value := "", words[0]
		words = words[1:]
		if value == "for" || value == "max" {
			if name, value = value, ""; len(words) > 0 {
				value, words = words[0], words[1:]
			}
		}
		if err := b.parseTerm(name, value, seen[name]); err != nil {
			errs = append(errs, err)
		}
		seen[name] = true
	}

	// All that is missing is named at once, and not the first alone.
	if !seen[""] {
		errs = append(errs, errors.New("it does not say how many refusals in how long begin a ban, such as 20/1m"))
	}
	for _, missing := range [...][2]string{{"for", "10m"}, {"max", "24h"}} {
		if !seen[missing[0]] {
			errs = append(errs, fmt.Errorf("%s is missing; write, say, %q", missing[0], missing[0]+" "+missing[1]))
		}
	}
	return b, errs
}

// parseTerm reads the value after "for" or "max", or, without a name, the refusals.
func (b *Ban) parseTerm(name, value string, again bool) (err error) {
	switch {
	case again && name == "":
		return fmt.Errorf("%q is one word too many", textform.Clip(value))
	case again:
		return fmt.Errorf("%s is given twice", name)
	case name == "for":
		b.For, err = parsePeriod(name, value)
		return err
	case name == "max":
		b.Max, err = parsePeriod(name, value)
		return err
	}

	// Either half may be wrong. The text is shown as a whole, because the mistake may be the
	// missing slash.
	strikes, within, _ := strings.Cut(value, "/")
	var bad error
	if b.Strikes, err = strconv.ParseInt(strikes, 10, 64); err == nil {
		b.Within, bad = parsePeriod("within", within)
	}
	if err != nil || bad != nil {
		return fmt.Errorf("%q is not a number of refusals and a time, such as 20/1m", textform.Clip(value))
	}
	return nil
}

// String returns the text that [ParseBan] reads as the same ban, if it is valid, and "" for
// the zero value.
func (b Ban) String() string {
	if b == (Ban{}) {
		return ""
	}
	return fmt.Sprintf("%d/%s for %s max %s", b.Strikes,
		textform.Duration(b.Within), textform.Duration(b.For), textform.Duration(b.Max))
}

// MarshalText returns String, or an error if the ban is neither valid nor zero.
func (b Ban) MarshalText() ([]byte, error) {
	if b == (Ban{}) {
		return nil, nil
	}
	if err := b.Validate(); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// UnmarshalText reads what [ParseBan] reads, and "" as the zero value.
func (b *Ban) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*b = Ban{}
		return nil
	}
	parsed, err := ParseBan(string(text))
	if err != nil {
		return err
	}
	*b = parsed
	return nil
}
