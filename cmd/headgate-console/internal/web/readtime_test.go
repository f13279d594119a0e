package web

import (
	"strings"
	"testing"
	"time"
)

func TestTimeOfAFormIsOneInstant(t *testing.T) {
	for _, c := range []struct{ text, zone, field, says string }{
		{"", "UTC", "at", "not a date and a time"},
		{"tomorrow", "UTC", "at", "not a date and a time"},
		{"2030-03-31T02:30", "Europe/Berlin", "at", "skip this time"},
		{"2030-10-27T02:30", "Europe/Berlin", "at", "twice"},
		{"2030-01-31T09:00", "", "zone", "not the name of a time zone"},

		// Local would be the zone of the server, and a path must not be opened as a file.
		{"2030-01-31T09:00", "Local", "zone", "not the name of a time zone"},
		{"2030-01-31T09:00", "../etc/passwd", "zone", "not the name of a time zone"},
	} {
		m := mistakes{}
		readTime(m, "at", c.text, c.zone)
		if len(m) != 1 || !strings.Contains(strings.Join(m[c.field], ""), c.says) {
			t.Errorf("%+v: %v", c, m)
		}
	}

	want := time.Date(2030, 1, 31, 3, 30, 0, 0, time.UTC)
	for _, text := range []string{"2030-01-31T09:00", "2030-01-31T09:00:00"} {
		m := mistakes{}
		if got := readTime(m, "at", text, "Asia/Kolkata"); !got.Equal(want) || len(m) > 0 {
			t.Errorf("%s is %v, %v", text, got, m)
		}
	}
}
