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

// TimeTicks returns at most seven instants on a time axis, at multiples of a round duration,
// and that duration. Those of an hour and more are in UTC.
func TimeTicks(from, to time.Time) ([]time.Time, time.Duration) {
	const day = 24 * time.Hour
	steps := []time.Duration{
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour,
		day, 2 * day, 5 * day, 10 * day, 30 * day, 60 * day,
	}

	step := steps[len(steps)-1]
	for _, s := range steps {
		if to.Sub(from)/s <= 6 {
			step = s
			break
		}
	}

	// The first tick is the first multiple of the step that is not before from.
	var list []time.Time
	seconds := int64(step / time.Second)
	for at := (from.Unix() + seconds - 1) / seconds * seconds; at <= to.Unix(); at += seconds {
		list = append(list, time.Unix(at, 0).UTC())
	}
	return list, step
}
