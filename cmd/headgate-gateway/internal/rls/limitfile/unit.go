// This file has the units of time.
//
// Every unit becomes a fixed window: of a second, a minute, an hour, a day, 7 days (week), 30
// (month) or 365 (year), which begins at a multiple of its length since the Unix epoch.
// At the end of a window a caller may thus use the limit twice. Two fields, which
// envoyproxy/ratelimit does not have, say it better:
//
//	algorithm        sliding-window, sliding-log, gcra, token-bucket or fixed-window
//	unit_multiplier  a period of so many units

package limitfile

import (
	"strings"
	"time"
)

// Unit is a unit of time. The numbers are those of the protocol.
type Unit int32

const (
	Second Unit = 1
	Minute Unit = 2
	Hour   Unit = 3
	Day    Unit = 4
	Month  Unit = 5
	Year   Unit = 6
	Week   Unit = 7
)

const day = 24 * time.Hour

var units = map[Unit]struct {
	name string
	span time.Duration
}{
	Second: {"second", time.Second},
	Minute: {"minute", time.Minute},
	Hour:   {"hour", time.Hour},
	Day:    {"day", day},
	Week:   {"week", 7 * day},
	Month:  {"month", 30 * day},
	Year:   {"year", 365 * day},
}

// Span returns the length of the unit: 30 days for a month, 365 for a year, and 0 for an
// unknown unit.
func (u Unit) Span() time.Duration { return units[u].span }

// parseUnit returns the unit of that name in any case, or 0.
func parseUnit(name string) Unit {
	for u, unit := range units {
		if strings.EqualFold(unit.name, name) {
			return u
		}
	}
	return 0
}
