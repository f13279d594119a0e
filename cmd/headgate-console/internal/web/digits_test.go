package web

import (
	"math"
	"testing"
)

func TestDigitsAreInGroupsOfThree(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 12345: "12,345", 100000: "100,000", 1234567: "1,234,567", -1: "-1",
		-999: "-999", -1000: "-1,000",
		math.MaxInt64: "9,223,372,036,854,775,807", math.MinInt64: "-9,223,372,036,854,775,808",
	} {
		if got := digits(n); got != want {
			t.Errorf("%d is shown as %s, want %s", n, got, want)
		}
	}
}
