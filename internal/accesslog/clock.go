package accesslog

import (
	"bytes"
	"time"
)

// clock reads the times of a log. Most are of the second of the line before, which is remembered.
type clock struct {
	text  [26]byte // of the last time of combined logs
	at    int64
	day   [10]byte // of the last time of RFC 3339
	start int64    // of that day in UTC, in seconds

	zone  int64 // of the last line, in seconds
	zoned bool
	Mixed bool // lines name different zones
}

// see remembers the zone of a line.
func (c *clock) see(zone int64) {
	c.Mixed = c.Mixed || c.zoned && zone != c.zone
	c.zone, c.zoned = zone, true
}

// months has the names of months as combined logs write them, in groups of three letters.
var months = []byte("JanFebMarAprMayJunJulAugSepOctNovDec")

// combined reads 28/Nov/2026:07:37:17 +0000.
func (c *clock) combined(b []byte) (at int64, ok bool) {
	if len(b) != len(c.text) {
		return 0, false
	}
	if string(b) == string(c.text[:]) {
		return c.at, true
	}

	start, ok1 := combinedDay(b[:11])
	second, ok2 := timeOfDay(b[12:20])
	zone, ok3 := zoneOf(b[21:])
	if !ok1 || !ok2 || !ok3 || b[11] != ':' || b[20] != ' ' {
		return 0, false
	}
	c.see(zone)
	copy(c.text[:], b)
	c.at = (start + second - zone) * 1e6
	return c.at, true
}

// combinedDay returns the beginning of 28/Nov/2026.
func combinedDay(b []byte) (seconds int64, ok bool) {
	month := indexOf(months, string(b[3:6]))
	day, ok1 := number(b[:2])
	year, ok2 := number(b[7:11])
	if !ok1 || !ok2 || month < 0 || month%3 != 0 || b[2] != '/' || b[6] != '/' {
		return 0, false
	}
	return startOf(year, int64(month/3+1), day)
}

// rfc3339 reads 2026-11-28T07:37:17.123Z, also with a space or a zone that is missing or has no
// colon, and 2026/11/28 07:37:17.
func (c *clock) rfc3339(b []byte) (at int64, ok bool) {
	if len(b) < 19 || (b[10] != 'T' && b[10] != ' ') {
		return 0, false
	}
	if string(b[:10]) != string(c.day[:]) {
		start, ok := rfc3339Day(b[:10])
		if !ok {
			return 0, false
		}
		c.start = start
		copy(c.day[:], b)
	}

	second, ok := timeOfDay(b[11:19])
	if !ok {
		return 0, false
	}

	rest, fraction := b[19:], int64(0)
	if len(rest) > 0 && (rest[0] == '.' || rest[0] == ',') {
		fraction, rest = fractionOf(rest[1:])
	}

	// A time without a zone is taken for UTC.
	zone := int64(0)
	if len(rest) > 0 && string(rest) != "Z" {
		if zone, ok = zoneOf(bytes.TrimPrefix(rest, []byte(" "))); !ok {
			return 0, false
		}
	}
	c.see(zone)
	return (c.start+second-zone)*1e6 + fraction, true
}

// rfc3339Day returns the beginning of 2026-11-28 or 2026/11/28.
func rfc3339Day(b []byte) (seconds int64, ok bool) {
	year, ok1 := number(b[:4])
	month, ok2 := number(b[5:7])
	day, ok3 := number(b[8:10])
	if !ok1 || !ok2 || !ok3 || b[4] != b[7] || (b[4] != '-' && b[4] != '/') {
		return 0, false
	}
	return startOf(year, month, day)
}

// unix reads seconds since the Unix epoch, with a fraction, or milliseconds or microseconds of as
// many digits as these have now.
func unix(b []byte) (at int64, ok bool) {
	whole, rest, fractional := cutByte(b, '.')
	n, ok := number(whole)
	if !ok {
		return 0, false
	}

	fraction := int64(0)
	if fractional {
		if fraction, rest = fractionOf(rest); len(rest) > 0 {
			return 0, false // such as an exponent
		}
	}

	// The number of digits tells the unit.
	switch {
	case n < 1e11:
		return n*1e6 + fraction, true
	case n < 1e14:
		return n*1e3 + fraction/1e3, true
	case n < 1e17:
		return n, true
	}

	return n / 1e3, true
}

// fractionOf reads the digits of a fraction of a second as microseconds, and returns what is
// behind them.
func fractionOf(b []byte) (micros int64, rest []byte) {
	unit := int64(1e5)
	for len(b) > 0 && b[0] >= '0' && b[0] <= '9' {
		micros += int64(b[0]-'0') * unit
		unit /= 10
		b = b[1:]
	}
	return micros, b
}

// timeOfDay reads 07:37:17 as seconds.
func timeOfDay(b []byte) (seconds int64, ok bool) {
	h, ok1 := number(b[:2])
	m, ok2 := number(b[3:5])
	s, ok3 := number(b[6:8])
	valid := ok1 && ok2 && ok3 && b[2] == ':' && b[5] == ':' && h < 24 && m < 60 && s <= 60
	return h*3600 + m*60 + s, valid
}

// zoneOf reads +0100 or +01:00 as seconds.
func zoneOf(b []byte) (seconds int64, ok bool) {
	if len(b) != 5 && (len(b) != 6 || b[3] != ':') || b[0] != '+' && b[0] != '-' {
		return 0, false
	}
	h, ok1 := number(b[1:3])
	m, ok2 := number(b[len(b)-2:])
	seconds = h*3600 + m*60
	if b[0] == '-' {
		seconds = -seconds
	}
	return seconds, ok1 && ok2 && h < 24 && m < 60
}

// startOf returns the beginning of a day in UTC, in seconds since the Unix epoch.
func startOf(year, month, day int64) (seconds int64, ok bool) {
	if year < 1970 || year > 2199 || month < 1 || month > 12 || day < 1 || day > 31 {
		return 0, false
	}
	t := time.Date(int(year), time.Month(month), int(day), 0, 0, 0, 0, time.UTC)
	return t.Unix(), t.Day() == int(day)
}
