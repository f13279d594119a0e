// This file has the limit of a single key, and its text.

package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/internal/textform"
)

// Override is the limit of a single key, or of all keys with a prefix, or a ban of it, or both. The
// zero value is not valid. Its instants are in whole microseconds, and are compared with the clock
// of the instance that decides.
type Override struct {
	// Limit is the zero Limit if the key has that of all others, which only a ban may have.
	Limit core.Limit `yaml:"limit,omitempty"`

	// Until is the instant at which Limit is no longer in force. The zero time means that it does
	// not end.
	Until time.Time `yaml:"until,omitempty"`

	// BannedUntil is the end of a ban, or the zero time without one. Until then all requests under
	// the key are refused, as limiter.BannedUntil says.
	BannedUntil time.Time `yaml:"banned_until,omitempty"`
}

const (
	// untilWord stands between the limit and its end in the text of an override.
	untilWord = " until "

	// banWords begin the text of an override that bans, and thenWord is behind the end of the ban
	// if a limit follows.
	banWords = "banned" + untilWord
	thenWord = ", then "
)

// ParseOverride reads what String returns: a limit, as in "1000/1h", a limit and its end, as in
// "1000/1h until 2026-12-04T17:00:00Z", or a ban, as in "banned until 2026-12-04T17:00:00Z". A ban
// and a limit are "banned until 2026-12-04T17:00:00Z, then 1000/1h". An end is a time of RFC 3339
// with its zone. A date alone is an error, as it ends at another instant in each zone.
// With an error in the limit behind a ban, the result is the ban alone.
func ParseOverride(text string) (o Override, err error) {
	// A ban needs its end. A limit behind it is there if the word for it is.
	parts := partsOf(text)
	if parts.BannedUntil != "" || strings.HasPrefix(text, banWords) {
		ban, err := ParseUntil(parts.BannedUntil)
		if err == nil && ban.IsZero() {
			err = errors.New("the end of the ban is missing")
		}
		if err != nil {
			return Override{}, err
		}

		o.BannedUntil = ban
		if parts.Limit == "" && !strings.Contains(text, thenWord) {
			return o, nil
		}
	}

	limit, err := core.ParseLimit(parts.Limit)
	if err != nil {
		return o, err
	}
	until, err := ParseUntil(parts.Until)
	if err == nil {
		o.Limit, o.Until = limit, until
	}
	return o, err
}

// ParseUntil reads the end of an override, "" for none.
func ParseUntil(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}

	if _, err := time.Parse(time.DateOnly, text); err == nil {
		return time.Time{}, fmt.Errorf("%q has no time and no zone; write, say, %sT17:00:00Z", text, text)
	}
	t, err := parseTime(text)
	if err == nil {
		err = checkUntil(t)
	}
	return t, err
}

// checkUntil returns what is wrong with the end of an override, or nil.
func checkUntil(t time.Time) error {
	switch {
	case t.IsZero():
		return nil
	case t.Nanosecond()%1000 != 0:
		return fmt.Errorf("the end %s is finer than a microsecond", timeText(t))
	}
	return checkTime(t)
}

// String returns the text that [ParseOverride] reads.
func (o Override) String() string {
	text := ""
	if !o.BannedUntil.IsZero() {
		text = banWords + timeText(o.BannedUntil)
		if !o.hasLimit() {
			return text
		}
		text += thenWord
	}
	if text += o.Limit.String(); !o.Until.IsZero() {
		text += untilWord + timeText(o.Until)
	}
	return text
}

// Validate returns everything that is wrong with the override by itself, or nil.
func (o Override) Validate() error {
	if !o.BannedUntil.IsZero() && !o.hasLimit() && o.Until.IsZero() {
		return checkUntil(o.BannedUntil)
	}
	return errors.Join(o.Limit.Validate(), checkUntil(o.Until), checkUntil(o.BannedUntil))
}

// hasLimit reports whether a limit is set, ended or not.
func (o *Override) hasLimit() bool { return o.Limit != core.Limit{} }

// Ended reports whether nothing of the override is in force at the instant.
func (o Override) Ended(at time.Time) bool { return !o.Bans(at) && !o.Limits(at) }

// Bans reports whether the ban of the override is in force at the instant.
func (o Override) Bans(at time.Time) bool { return at.Before(o.BannedUntil) }

// Limits reports whether the override has a limit that is in force at the instant. A ban comes
// before it.
func (o Override) Limits(at time.Time) bool {
	return o.hasLimit() && (o.Until.IsZero() || at.Before(o.Until))
}

// MarshalJSON writes a valid override as [OverrideText] is written.
func (o Override) MarshalJSON() ([]byte, error) { return OverrideText(o.String()).MarshalJSON() }

// UnmarshalJSON reads what MarshalJSON writes.
func (o *Override) UnmarshalJSON(data []byte) error {
	var text OverrideText
	err := text.UnmarshalJSON(data)
	if err == nil {
		*o, err = ParseOverride(string(text))
	}
	return err
}

// OverrideText is a written override: the text form of an [Override]. In JSON it is that text if it
// is a limit without an end, and otherwise an object of "limit", "until" and "banned_until". Either
// is read from both.
type OverrideText string

// overrideParts is the object. What is empty is not set, as a limit beside a ban may be.
type overrideParts struct {
	Limit       string `json:"limit,omitempty"`
	Until       string `json:"until,omitempty"`
	BannedUntil string `json:"banned_until,omitempty"`
}

// partsOf takes a text apart.
func partsOf(text string) (p overrideParts) {
	if rest, bans := strings.CutPrefix(text, banWords); bans {
		p.BannedUntil, text, _ = strings.Cut(rest, thenWord)
	}
	p.Limit, p.Until, _ = strings.Cut(text, untilWord)
	return p
}

// text is the inverse of partsOf.
func (o *overrideParts) text() (text string) {
	// The limit stands behind the ban, and is in force from its end on.
	if o.BannedUntil != "" {
		text = banWords + o.BannedUntil
		if o.Limit+o.Until != "" {
			text += thenWord
		}
	}

	if text += o.Limit; o.Until != "" {
		text += untilWord + o.Until
	}
	return text
}

// MarshalJSON implements [json.Marshaler].
func (o OverrideText) MarshalJSON() ([]byte, error) {
	if parts := partsOf(string(o)); parts.Until+parts.BannedUntil != "" {
		return json.Marshal(parts)
	}
	return json.Marshal(string(o))
}

// UnmarshalJSON implements [json.Unmarshaler]. The text is not checked; see [ParseOverride].
func (o *OverrideText) UnmarshalJSON(data []byte) error {
	if data[0] != '{' {
		if err := json.Unmarshal(data, (*string)(o)); err != nil || string(data) == "null" {
			return fmt.Errorf("%s is no limit, and no object of limit and until", textform.Clip(string(data)))
		}
		return nil
	}

	var parts overrideParts
	if err := strictjson.Decode(data, &parts); err != nil {
		return err
	}

	// A limit that says more than a limit would be read as what it says, such as a ban.
	text := parts.text()
	if partsOf(text) != parts {
		return fmt.Errorf("%s has an end or a ban in another member", textform.Clip(string(data)))
	}
	*o = OverrideText(text)
	return nil
}
