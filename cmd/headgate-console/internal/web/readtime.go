package web

import "time"

// readTime reads a time of a field with the zone of another, and adds mistakes.
func readTime(m mistakes, field, text, zone string) time.Time {
	where, err := time.LoadLocation(zone)
	if err != nil || zone == "" || zone == "Local" {
		m.add("zone", "it is not the name of a time zone, such as UTC or Europe/Berlin")
		return time.Time{}
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		t, err := time.ParseInLocation(layout, text, where)
		if err != nil {
			continue
		}

		// Twice a year a clock skips an hour, or shows one twice. Go picks an instant in both
		// cases, and the user has to say which one is meant.
		switch {
		case t.Format(layout) != text:
			m.add(field, "the clocks of this time zone skip this time; choose another")
		case t.Add(time.Hour).Format(layout) == text || t.Add(-time.Hour).Format(layout) == text:
			m.add(field, "the clocks of this time zone show this time twice; give it in UTC")
		}
		return t
	}

	m.add(field, "it is not a date and a time, such as 2030-01-31T09:00")
	return time.Time{}
}
