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

// Override is the limit of a single key, or of all keys with a prefix. The zero value is not valid.
type Override struct {
	Limit core.Limit

	// Until is when the override ends: the instant at which it is no longer in force, by the clock
	// of the instance that decides. The zero time means that it does not end. It is in whole
	// microseconds.
	Until time.Time
}

// untilWord stands between the limit and the end in the text of an override.
const untilWord = " until "

// ParseOverride reads what String returns: a limit, as in "1000/1h", or a limit and its end, as in
// "1000/1h until 2026-12-04T17:00:00Z". The end is a time of RFC 3339 with its zone. A date alone
// is an error, as it ends at another instant in each zone.
func ParseOverride(text string) (o Override, err error) {
	limit, end, ends := strings.Cut(text, untilWord)
	if o.Limit, err = core.ParseLimit(limit); err != nil || !ends {
		return o, err
	}
	o.Until, err = ParseUntil(end)
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
	if o.Until.IsZero() {
		return o.Limit.String()
	}
	return o.Limit.String() + untilWord + timeText(o.Until)
}

// Validate returns everything that is wrong with the override by itself, or nil.
func (o Override) Validate() error { return errors.Join(o.Limit.Validate(), checkUntil(o.Until)) }

// Ended reports whether the override is no longer in force at the instant.
func (o Override) Ended(at time.Time) bool { return !o.Until.IsZero() && !at.Before(o.Until) }

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
// has no end, and otherwise an object of "limit" and "until". Either is read from both.
type OverrideText string

// overrideParts is the object.
type overrideParts struct {
	Limit string `json:"limit"`
	Until string `json:"until,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (o OverrideText) MarshalJSON() ([]byte, error) {
	limit, end, ends := strings.Cut(string(o), untilWord)
	if !ends {
		return json.Marshal(limit)
	}
	return json.Marshal(overrideParts{limit, end})
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
	*o = OverrideText(parts.Limit)
	if parts.Until != "" {
		*o += OverrideText(untilWord + parts.Until)
	}
	return nil
}
