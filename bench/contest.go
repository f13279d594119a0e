package main

import (
	"fmt"
	"math"
	"os"
	"slices"
)

// contender is a limiter to compare. once measures it once and returns the same
// kinds of figures as for the others, in the same order.
type contender struct {
	name string
	once func() ([]float64, error)
}

// outcome is the result of a contender: the median of each figure and the first
// figure of each round, or the reason why there are none.
type outcome struct {
	name   string
	median []float64
	first  []float64
	failed error
}

// contest lets the contenders take turns. Each round begins with another one. A
// contender that fails is left out, and the others continue.
func contest(list []contender, rounds int) []outcome {
	out := make([]outcome, len(list))
	figures := make([][][]float64, len(list))
	for i := range list {
		out[i].name = list[i].name
	}

	// Each round begins with another contender, so that none is always the first.
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

	// The rounds before a failure are no figures: they were fewer, and perhaps wrong already.
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

// guarded turns a panic of a contender into an error.
func guarded(once func() ([]float64, error)) (f []float64, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return once()
}

// medians returns the median of each column.
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
