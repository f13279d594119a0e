package policy

import (
	"fmt"
	"github.com/headgate/headgate/internal/textform"
	"time"
)

// checkTime refuses times that RFC 3339 cannot express.
func checkTime(t time.Time) error {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return fmt.Errorf("the year %d is not within 1 to 9999", y)
	}
	return nil
}

// timeText returns t in UTC, or "" for the zero time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func parseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time such as 2026-01-31T12:00:00Z", textform.Clip(s))
	}
	return t.UTC(), nil
}
