package main

import (
	"fmt"
	"math"
	"os"
	"slices"
)

// contender is one of those that are compared. Once measures it one time and
// returns the same kind of figures, in the same order, as the others do.
type contender struct {
	name string
	once func() ([]float64, error)
}

// outcome is how a contender came out: the median of each figure and the first
// figure of each round, or why there are none.
type outcome struct {
	name   string
	median []float64
	first  []float64
	failed error
}

// contest lets the contenders take turns. The first one changes from round to
// round. A contender that fails is out and the others go on.
func contest(list []contender, rounds int) []outcome {
	out := make([]outcome, len(list))
	figures := make([][][]float64, len(list))
	for i := range list {
		out[i].name = list[i].name
	}
	for round := range rounds {
		for k := range list {
			i := (k + round) % len(list)
			if out[i].failed != nil {
				continue
			}
			f, err := guarded(list[i].once)
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", list[i].name, err)
				out[i].failed = err
				continue
			}
			figures[i] = append(figures[i], f)
		}
	}
	for i := range out {
		if out[i].failed == nil {
			for _, f := range figures[i] {
				out[i].first = append(out[i].first, f[0])
			}
			out[i].median = medians(figures[i])
		}
	}
	return out
}

// guarded makes a panic of a contender an error.
func guarded(once func() ([]float64, error)) (f []float64, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return once()
}

// medians takes the median of each column.
func medians(rows [][]float64) []float64 {
	out := make([]float64, len(rows[0]))
	for i := range out {
		column := make([]float64, len(rows))
		for j := range rows {
			column[j] = rows[j][i]
		}
		out[i] = median(column)
	}
	return out
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
