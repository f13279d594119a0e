package drawing

import (
	"math"
	"strconv"
	"time"
)

// Ticks returns the values of an axis from 0 to at least highest: four to six of them, at
// multiples of 1, 2 or 5 times a power of ten. The last is the end of the axis. An axis of
// nothing ends at 1.
func Ticks(highest float64) []float64 {
	// The condition is written so that it holds for NaN, too.
	if !(highest > 0) || math.IsInf(highest, 0) {
		return []float64{0, 1}
	}

	// The step is the smallest round number of which highest is at most five times as large.
	unit := math.Pow(10, math.Floor(math.Log10(highest))-1)
	step := unit
	for _, n := range []float64{2, 5, 10, 20, 50} {
		if highest/step <= 5 {
			break
		}
		step = n * unit
	}

	list := []float64{0}
	for i := 1; list[len(list)-1] < highest; i++ {
		list = append(list, float64(i)*step)
	}
	return list
}

// Short writes a number for an axis: of at most three digits, in thousands, millions and so on.
func Short(v float64) string {
	const names = "kMGTP"
	if v < 1000 {
		return strconv.FormatFloat(round(v), 'f', -1, 64)
	}
	i := -1
	for ; v >= 1000 && i < len(names)-1; i++ {
		v /= 1000
	}
	return strconv.FormatFloat(round(v), 'f', -1, 64) + names[i:i+1]
}

// round returns a number with three digits.
func round(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	if err != nil {
		return v
	}
	return r
}

// RoundStep returns the shortest round duration of which a span has at most so many and a part,
// from a microsecond to 60 days.
func RoundStep(span time.Duration, most int) time.Duration {
	const us, ms, day = time.Microsecond, time.Millisecond, 24 * time.Hour
	steps := []time.Duration{
		us, 2 * us, 5 * us, 10 * us, 20 * us, 50 * us, 100 * us, 200 * us, 500 * us,
		ms, 2 * ms, 5 * ms, 10 * ms, 20 * ms, 50 * ms, 100 * ms, 200 * ms, 500 * ms,
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour,
		day, 2 * day, 5 * day, 10 * day, 30 * day, 60 * day,
	}
	for _, s := range steps {
		if span/s <= time.Duration(most) {
			return s
		}
	}
	return steps[len(steps)-1]
}

// SpanTicks returns instants of an axis from 0 to at most a span, at multiples of a round duration:
// 0 and at most so many more, for a span of up to 60 days each.
func SpanTicks(span time.Duration, most int) []time.Duration {
	step := RoundStep(span, most)
	var list []time.Duration
	for at := time.Duration(0); at <= span; at += step {
		list = append(list, at)
	}
	return list
}

// TimeTicks returns at most seven instants on a time axis, at multiples of a round duration,
// and that duration. Those of an hour and more are in UTC.
func TimeTicks(from, to time.Time) ([]time.Time, time.Duration) {
	step := max(time.Minute, RoundStep(to.Sub(from), 6))

	// The first tick is the first multiple of the step that is not before from.
	var list []time.Time
	seconds := int64(step / time.Second)
	for at := (from.Unix() + seconds - 1) / seconds * seconds; at <= to.Unix(); at += seconds {
		list = append(list, time.Unix(at, 0).UTC())
	}
	return list, step
}
