package drawing

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

func TestTableHasWhatALimitAdmits(t *testing.T) {
	for text, want := range map[string][]int64{
		"100/1m burst=20":      {20, 30, 45, 70, 120, 220},
		"10/10s":               {10, 11, 12, 15, 20, 30},
		"100/1m fixed-window":  {100, 100, 100, 100, 200, 300},
		"10/1s token-bucket":   {10, 10, 10, 10, 20, 30},
		"5/1m sliding-log":     {5, 5, 5, 5, 10, 15},
		"20 concurrent ttl=1m": nil,
		"31/month start=15":    {31, 31, 31, 31, 62, 93},
	} {
		var got []int64
		for _, row := range Table(core.MustParseLimit(text)) {
			got = append(got, row.Units)
		}

		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestTextDrawsTheCourse(t *testing.T) {
	got, err := Text(core.MustParseLimit("4/1m fixed-window"))
	if err != nil {
		t.Fatal(err)
	}

	// Four in each window: a third, two thirds and all of the height, from the first request on.
	lines := strings.Split(got, "\n")
	ground := strings.Split(lines[8], "▕")[1]
	if len(lines) != 11 || ground != strings.Repeat("█", 60) {
		t.Errorf("%d lines, and the ground is %q:\n%s", len(lines), ground, got)
	}
	if top := strings.Split(lines[1], "▕")[1]; strings.Count(top, "█") != 21 {
		t.Errorf("the highest line is %q:\n%s", top, got)
	}

	if _, err := Text(core.Limit{Period: time.Second}); err == nil {
		t.Error("a mistake is drawn")
	}
	if got := Line([]float64{0, 1, 4, 8}); got != " ▁▄█" {
		t.Errorf("the line is %q", got)
	}
}
