package drawing

import (
	"math"
	"testing"
)

func TestSparkline(t *testing.T) {
	for name, row := range map[string]struct {
		whole, part  []int64
		wantW, wantP string
	}{
		"nothing":           {nil, nil, "", ""},
		"only empty values": {[]int64{0, 0}, []int64{0, 0}, "", ""},
		"a half":            {[]int64{10, 0, 5}, []int64{5, 0, 0}, "M0 24v-24h3v24zM8 24v-12h3v12z", "M0 24v-12h3v12z"},
		"a trace":           {[]int64{1_000_000, 1}, []int64{1, 1}, "M0 24v-24h3v24zM4 24v-1h3v1z", "M0 24v-1h3v1zM4 24v-1h3v1z"},
		"a part too large":  {[]int64{4, 2}, []int64{9, 9}, "M0 24v-24h3v24zM4 24v-12h3v12z", "M0 24v-24h3v24zM4 24v-12h3v12z"},
		"below nothing":     {[]int64{-4, 2}, []int64{-1}, "M4 24v-24h3v24z", ""},
		"the largest":       {[]int64{math.MaxInt64, math.MaxInt64 / 3}, []int64{0, 0}, "M0 24v-24h3v24zM4 24v-8h3v8z", ""},
	} {
		if w, p := Sparkline(row.whole, row.part); w != row.wantW || p != row.wantP {
			t.Errorf("%s: %q and %q, want %q and %q", name, w, p, row.wantW, row.wantP)
		}
	}
	if SparkWidth(24) != 96 {
		t.Errorf("the width is %d", SparkWidth(24))
	}
}
