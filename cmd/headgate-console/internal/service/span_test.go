package service

import (
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

func TestSpanOf(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 34, 56, 0, time.UTC)

	// Without a step it is the finest that has few enough points and whose rows are still kept.
	// Ranges grow to whole steps.
	for _, row := range []struct {
		name     string
		from, to time.Time
		step     time.Duration
		want     string // from, to, step and level in minutes; "" for a mistake
	}{
		{"the default is a quarter of an hour", time.Time{}, time.Time{}, 0, "2026-03-10 12:20 2026-03-10 12:35 1 1"},
		{"six hours", now.Add(-6 * time.Hour), time.Time{}, 0, "2026-03-10 06:34 2026-03-10 12:35 1 1"},
		{"a day", now.Add(-24 * time.Hour), time.Time{}, 0, "2026-03-09 12:30 2026-03-10 12:35 5 1"},
		{"a week", now.AddDate(0, 0, -7), time.Time{}, 0, "2026-03-03 12:30 2026-03-10 13:00 30 10"},
		{"thirty days", now.AddDate(0, 0, -30), time.Time{}, 0, "2026-02-08 12:00 2026-03-10 15:00 180 60"},
		{"all that is kept", now.AddDate(-20, 0, 0), now.AddDate(20, 0, 0), 0,
			"2025-02-03 00:00 2026-03-11 00:00 1440 1440"},
		{"minutes of five days ago are not kept", now.AddDate(0, 0, -5), now.AddDate(0, 0, -5).Add(time.Hour), 0,
			"2026-03-05 12:30 2026-03-05 13:40 10 10"},
		{"ten minutes of a month ago are not kept", now.AddDate(0, -1, 0), now.AddDate(0, -1, 0).Add(time.Hour), 0,
			"2026-02-10 12:00 2026-02-10 14:00 60 60"},
		{"a step that is given", now.Add(-24 * time.Hour), time.Time{}, time.Hour,
			"2026-03-09 12:00 2026-03-10 13:00 60 60"},
		{"a step that is too fine", now.AddDate(0, 0, -30), time.Time{}, 10 * time.Minute, ""},
		{"a step that is not kept", now.AddDate(0, 0, -5), now.AddDate(0, 0, -5).Add(time.Hour), time.Minute, ""},
		{"no step", time.Time{}, time.Time{}, 7 * time.Minute, ""},
		{"an empty range", now, now, 0, ""},
		{"a range that ends before", now, now.Add(-time.Hour), 0, ""},
	} {
		s, err := TrafficQuery{From: row.from, To: row.to, Step: row.step}.span(now)
		if row.want == "" {
			if err == nil {
				t.Errorf("%s: %+v", row.name, s)
			}
			continue
		}

		const form = "2006-01-02 15:04"
		got := atMinute(s.from).Format(form) + " " + atMinute(s.to).Format(form) + " " + itoa(s.step) + " " +
			itoa(s.level)
		if err != nil || got != row.want {
			t.Errorf("%s: %s, want %s; %v", row.name, got, row.want, err)
		}

		if rows := (s.to - s.from) / s.level; rows > maxRows {
			t.Errorf("%s: %d rows", row.name, rows)
		}

		checkPieces(t, row.name, s)
	}
}

// checkPieces checks that the pieces are the span, and few rows.
func checkPieces(t *testing.T, name string, s span) {
	t.Helper()
	at, rows := s.from, int64(0)
	for _, p := range s.pieces() {
		if p.from != at || p.from%p.level != 0 || p.to%p.level != 0 || p.from < s.now-keptMinutes(p.level)-p.level {
			t.Errorf("%s: the pieces are %v", name, s.pieces())
		}
		at = p.to
		rows += (p.to - p.from) / p.level
	}

	// Rows of ten days in between, at most nine of a day, and some of hours and minutes at the
	// ends.
	days := (s.to - s.from) / (24 * 60)
	if at < s.to || at != s.to && s.to <= s.now || rows > days/10+9+60 {
		t.Errorf("%s: the pieces %v end at %d and have %d rows, for %+v", name, s.pieces(), at, rows, s)
	}
}

// The oldest range that can be asked for has no row that is pruned, also while the collector is in
// the next minute already.
func TestPrunedMinutesAreInNoSpan(t *testing.T) {
	begin := minute(time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC))
	for _, step := range Steps {
		for now := begin; now < begin+store.ByTenDays; now += 7 { // so that it is every minute of a day
			for _, rows := range []int64{1, maxRows} {
				s := oldest(t, now, step, rows)
				for _, p := range s.pieces() {
					if p.from < floorTo(now+1-prunedMinutes(p.level), p.level) {
						t.Fatalf("%s, at %d: of %+v, %+v is pruned", step, now, s, p)
					}
				}
			}
		}
	}
}

// oldest returns the oldest range of so many rows, or of one step, that can be asked for.
func oldest(t *testing.T, now int64, step time.Duration, rows int64) span {
	t.Helper()
	s := span{}.over(0, 1, int64(step/time.Minute))
	for first := now - keptMinutes(s.level) - 2*s.step; first <= now; first++ {
		to := min(floorTo(first, s.step)+rows*s.level, now+1)
		q := TrafficQuery{From: atMinute(first), To: atMinute(to), Step: step}
		if found, err := q.span(atMinute(now)); err == nil {
			return found
		}
	}
	t.Fatalf("no range of steps of %s can be asked for at %d", step, now)
	return s
}
