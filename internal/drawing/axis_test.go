package drawing

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTicks(t *testing.T) {
	// Nothing that can be drawn still has an axis.
	for highest, want := range map[float64][]float64{
		0:           {0, 1},
		-1:          {0, 1},
		math.NaN():  {0, 1},
		math.Inf(1): {0, 1},

		// The axis ends at the first tick that is not below the highest, 1 and 4 themselves.
		0.017: {0, .005, .01, .015, .02},
		1:     {0, .2, .4, .6, .8, 1},
		4:     {0, 1, 2, 3, 4},
		5.1:   {0, 2, 4, 6},
		12:    {0, 5, 10, 15},
		1000:  {0, 200, 400, 600, 800, 1000},
		98765: {0, 20000, 40000, 60000, 80000, 100000},
	} {
		// A step below 1 is not exact in binary, and a billionth cannot be seen.
		got := Ticks(highest)
		if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("the ticks up to %v are %v and not %v", highest, got, want)
		}
	}

	// At the bounds of the numbers the ticks have to end, be few, and reach the highest.
	for _, highest := range []float64{1e-300, math.MaxFloat64 / 100, 1.0000001, 9.9999999, 1 << 62} {
		if got := Ticks(highest); len(got) < 3 || len(got) > 7 || got[len(got)-1] < highest {
			t.Errorf("the ticks up to %v are %v", highest, got)
		}
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", .005: "0.005", .6: "0.6", 0.1 + 0.2: "0.3", 999: "999", 1000: "1k",
		1500: "1.5k", 200_000: "200k", 2.5e6: "2.5M", 1e18: "1000P"} {
		if got := Short(v); got != want {
			t.Errorf("%v is %q and not %q", v, got, want)
		}
	}
}

func TestTimeTicks(t *testing.T) {
	// 11:57 is a multiple of none of the steps, so the first tick comes after the beginning of the
	// axis.
	from := time.Date(2026, 3, 1, 11, 57, 0, 0, time.UTC)

	for span, want := range map[time.Duration]string{
		15 * time.Minute:    "12:00 12:05 12:10",
		time.Hour:           "12:00 12:10 12:20 12:30 12:40 12:50",
		6 * time.Hour:       "12:00 13:00 14:00 15:00 16:00 17:00",
		24 * time.Hour:      "12:00 16:00 20:00 00:00 04:00 08:00",
		7 * 24 * time.Hour:  "00:00 00:00 00:00 00:00",
		30 * 24 * time.Hour: "00:00 00:00 00:00 00:00 00:00 00:00",
	} {
		list, step := TimeTicks(from, from.Add(span))
		var got string
		for i, at := range list {
			got += at.Format("15:04 ")
			if i > 0 && at.Sub(list[i-1]) != step {
				t.Errorf("%s: %s comes %s after another, and the step is %s", span, at, at.Sub(list[i-1]), step)
			}
		}

		if got != want+" " {
			t.Errorf("%s: the ticks are %s", span, fmt.Sprint(list))
		}
	}

	// A span longer than all of these still has a handful of ticks.
	if list, _ := TimeTicks(from, from.Add(400*24*time.Hour)); len(list) != 7 {
		t.Errorf("the ticks of 400 days are %v", list)
	}
}

func TestSpanTicks(t *testing.T) {
	for span, want := range map[time.Duration]string{
		0:                        "0",
		time.Millisecond:         "0 200µs 400µs 600µs 800µs 1ms",
		3 * time.Minute:          "0 30s 1m 1m30s 2m 2m30s 3m",
		200 * time.Minute:        "0 30m 1h 90m 2h 150m 3h",
		100 * 24 * time.Hour:     "0 30d 60d 90d",
		400 * 24 * time.Hour:     "0 60d 120d 180d 240d 300d 360d",
		30*time.Hour + 1:         "0 6h 12h 18h 1d 30h",
		499*time.Millisecond + 9: "0 100ms 200ms 300ms 400ms",
	} {
		var got []string
		for _, at := range SpanTicks(span, 6) {
			got = append(got, Span(at))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: the ticks are %q, want %s", span, got, want)
		}
	}

	// A narrow picture has fewer.
	if got := SpanTicks(3*time.Minute, 3); len(got) != 4 {
		t.Errorf("the ticks are %v", got)
	}
}
