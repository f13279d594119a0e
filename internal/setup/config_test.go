package setup

import (
	"testing"

	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/limiter"
)

func TestConfigOf(t *testing.T) {
	const nilLimiter = "headgate: the limiter is nil"
	const second = "more than one Config was given, and all but the first are ignored"

	l := gatetest.Limited(t, "1/1h")
	for name, row := range map[string]struct {
		l    *limiter.Limiter
		list []int
		want int
		err  string
	}{
		"none": {l, nil, 0, ""},
		"one":  {l, []int{1}, 1, ""},
		"two":  {l, []int{1, 2}, 1, second},

		// A mistake in the limiter does not hide that of the Configs.
		"none and a nil limiter":     {nil, nil, 0, nilLimiter},
		"one and a nil limiter":      {nil, []int{1}, 1, nilLimiter},
		"three and a nil limiter":    {nil, []int{1, 2, 3}, 1, nilLimiter + "\n" + second},
		"two zero ones are too many": {l, []int{0, 0}, 0, second},
	} {
		// A faulty call has a value nevertheless, so that a constructor reports its other mistakes
		// too.
		got, err := ConfigOf(row.l, row.list)
		text := ""
		if err != nil {
			text = err.Error()
		}

		if got != row.want || text != row.err {
			t.Errorf("%s: %d, %q, want %d, %q", name, got, text, row.want, row.err)
		}
	}
}
