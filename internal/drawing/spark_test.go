package drawing

import (
	"math"
	"testing"
)

func TestSparkline(t *testing.T) {
	// The scale is that of the largest whole; what is above nothing is one pixel high at least.
	for name, row := range map[string]struct {
		whole, part  []int64
		wantW, wantP string
	}{
		// Without bars there is no line along the ground either.
		"nothing":           {nil, nil, "", ""},
		"only empty values": {[]int64{0, 0}, []int64{0, 0}, "", ""},

		"a half":           {[]int64{10, 0, 5}, []int64{5, 0, 0}, "M0 24V0h3V24h5V12h3V24", "M0 24V12h3V24"},
		"tenths":           {[]int64{240, 239, 7}, []int64{0, 123}, "M0 24V0h3V24h1V0.1h3V24h1V23h3V24", "M4 24V11.7h3V24"},
		"a trace":          {[]int64{1_000_000, 1}, []int64{1, 1}, "M0 24V0h3V24h1V23h3V24", "M0 24V23h3V24h1V23h3V24"},
		"a part too large": {[]int64{4, 2}, []int64{9, 9}, "M0 24V0h3V24h1V12h3V24", "M0 24V0h3V24h1V12h3V24"},

		// Neither a number below nothing nor the largest one may leave the picture.
		"below nothing": {[]int64{-4, 2}, []int64{-1}, "M4 24V0h3V24", ""},
		"the largest":   {[]int64{math.MaxInt64, math.MaxInt64 / 3}, []int64{0, 0}, "M0 24V0h3V24h1V16h3V24", ""},
	} {
		if w, p := Sparkline(row.whole, row.part); w != row.wantW || p != row.wantP {
			t.Errorf("%s: %q and %q, want %q and %q", name, w, p, row.wantW, row.wantP)
		}
	}

	if SparkWidth(24) != 96 {
		t.Errorf("the width is %d", SparkWidth(24))
	}
}
