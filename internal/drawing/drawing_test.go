package drawing

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

func parse(t testing.TB, text string) core.Limit {
	t.Helper()
	l, err := core.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestCourseFollowsTheAlgorithm(t *testing.T) {
	s := time.Second

	// Each passes what is allowed at once with the first request, and what comes back until the
	// twelfth second.
	for _, row := range []struct {
		limit string
		want  []point
	}{
		{"10/4s fixed-window", []point{{0, 10}, {4 * s, 20}, {8 * s, 30}, {12 * s, 30}}},
		// The first request comes a second after the beginning of an aligned window.
		{"10/4s fixed-window aligned", []point{{0, 10}, {3 * s, 20}, {7 * s, 30}, {11 * s, 40}, {12 * s, 40}}},
		{"10/4s sliding-log", []point{{0, 10}, {4 * s, 20}, {8 * s, 30}, {12 * s, 30}}},

		// A bucket gets the units of a Period back together, and the limit below it one by one.
		{"2/4s token-bucket burst=5", []point{{0, 5}, {4 * s, 7}, {8 * s, 9}, {12 * s, 9}}},
		{"2/4s burst=3", []point{{0, 3}, {2 * s, 4}, {4 * s, 5}, {6 * s, 6}, {8 * s, 7}, {10 * s, 8},
			{12 * s, 9}, {12 * s, 9}}},

		// What is held comes and goes, and is no sum.
		{"3 concurrent ttl=4s", []point{{0, 3}, {2 * s, 0}, {4 * s, 3}, {6 * s, 0}, {8 * s, 3}, {10 * s, 0}}},
	} {
		c, err := simulate(parse(t, row.limit))
		if err != nil || !slices.Equal(c.points, row.want) {
			t.Errorf("%s: %v, %v, want %v", row.limit, c.points, err, row.want)
		}
	}
}

func TestCourseAgreesWithItsAxis(t *testing.T) {
	c, err := simulate(parse(t, "100/1m burst=20"))
	if err != nil {
		t.Fatal(err)
	}

	// The axis names the instants from the first request on.
	for at, want := range map[time.Duration]int64{0: 20, time.Minute: 120, 2 * time.Minute: 220, 3 * time.Minute: 320} {
		var got int64
		for _, p := range c.points {
			if p.at <= at {
				got = p.units
			}
		}
		if got != want {
			t.Errorf("at %v there are %d units, want %d", at, got, want)
		}
	}
}

func TestSVGIsWellFormedAndSmall(t *testing.T) {
	// The smallest, the largest, and what needs the most points.
	for _, text := range []string{
		"1/1s", "100/1m", "1000000000/24h", "1/400d", "1/1ms", "9000/1s burst=1", "999983/24h burst=2",
		"100/1m token-bucket burst=100000",
		"1000/1h sliding-log", "240/1h sliding-window segments=60", "20/1s fixed-window aligned",
		"10000 concurrent ttl=1h",
	} {
		svg, err := SVG(parse(t, text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}

		// Some of these limits admit far more units than a drawing has room for points.
		if len(svg) > 128<<10 {
			t.Errorf("%s: %d bytes", text, len(svg))
		}

		// Of a document that is not well-formed, browsers show an error in place of a picture.
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s: %v", text, err)
				break
			}
		}

		// To XML these are text like any other, but no browser can draw them.
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: a coordinate is not a number", text)
		}
	}
}

func TestSVGRefusesWrongLimits(t *testing.T) {
	if _, err := SVG(core.Limit{Quota: -1}); err == nil || !strings.Contains(err.Error(), "quota -1") {
		t.Errorf("%v", err)
	}
}

func TestSVGInWords(t *testing.T) {
	for text, want := range map[string]string{
		"10/4s fixed-window":   "A caller that never stops asking gets 10 at once and 30 in 12s.",
		"20 concurrent ttl=1m": "At most 20 at the same time, however fast they come.",
	} {
		if svg, err := SVG(parse(t, text)); err != nil || !strings.Contains(svg, want) {
			t.Errorf("%s: not said: %s", text, want)
		}
	}
}

func TestNumbersAndSpansAreShort(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 9999: "9999", 12_345: "12.3k", 1_000_000: "1M",
		2_500_000_000: "2.5G", 7e15: "7P"} {
		if got := short(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}

	// The largest unit that divides the span is used: 36 hours are no whole days.
	for d, want := range map[time.Duration]string{
		0:                       "0",
		1500 * time.Millisecond: "1.5s",
		90 * time.Second:        "1m30s",
		3 * time.Minute:         "3m",
		36 * time.Hour:          "36h",
		48 * time.Hour:          "2d",
	} {
		if got := Span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func BenchmarkDraw(b *testing.B) {
	l := parse(b, "1000000/1h")
	for b.Loop() {
		if _, err := SVG(l); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCourseSmoothEqualsSimulation(t *testing.T) {
	for _, text := range []string{"10/4s", "7/7s burst=3", "4/1s burst=9", "100/1m burst=1", "200/1s"} {
		l := parse(t, text)
		c := course{span: periods * l.Period}
		if a, b := c.smooth(l), c.simulate(l); !slices.Equal(a.points, b.points) {
			t.Errorf("%s: %v, simulated %v", text, a.points, b.points)
		}
	}
}

func TestGridStepIsRound(t *testing.T) {
	for highest, want := range map[int64]int64{0: 1, 1: 1, 5: 1, 6: 2, 15: 5, 30: 10, 300: 100, 1100: 200,
		27_500_000: 5_000_000, 1 << 53: 2_000_000_000_000_000} {
		if got := gridStep(highest); got != want {
			t.Errorf("up to %d: steps of %d, want %d", highest, got, want)
		}
	}
}
