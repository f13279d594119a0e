package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// errSlow means that headgate costs more than its bound, compared to a rival.
var errSlow = errors.New("headgate has become slow")

// guardPace is the pace of -guard: many short turns.
var guardPace = pace{rounds: 6, round: 20 * time.Millisecond, keys: quick.keys, life: 4 * time.Second}

// attempts is how often a bound is measured. The turns of all attempts count.
const attempts = 4

var errSkipped = errors.New("skipped")

// guard writes the result for every bound and returns errSlow if one was broken.
func guard(w io.Writer) error {
	broken := 0

	// One run names all bounds that are broken, as a cause may show in some of them alone. A bound
	// that cannot be measured is no failure, as where Redis is not installed.
	for _, b := range bounds {
		cost, floor, err := b.measure(guardPace, b.max)
		switch {
		case errors.Is(err, errSkipped):
			fmt.Fprintf(w, "skip  %s: %v\n", b.name, err)
		case err != nil:
			broken++
			fmt.Fprintf(w, "FAIL  %s: %v\n", b.name, err)
		case cost > b.max:
			broken++
			fmt.Fprintf(w, "FAIL  %s: %.2f, at most %.2f%s\n", b.name, cost, b.max, floorText(floor))
		default:
			fmt.Fprintf(w, "ok    %s: %.2f, at most %.2f, goal %.2f%s\n", b.name, cost, b.max, b.goal, floorText(floor))
		}
	}

	if broken > 0 {
		return fmt.Errorf("%w: %d of %d bounds", errSlow, broken, len(bounds))
	}
	return nil
}

// floorText names a floor, if there is one.
func floorText(floor float64) string {
	if math.IsNaN(floor) {
		return ""
	}
	return fmt.Sprintf(", floor %.2f", floor)
}

// goalsSection measures where headgate stands, with all attempts unless it has to be quick.
func goalsSection(p pace) ([]Table, error) {
	enough := math.Inf(-1)
	if p == quick {
		enough = math.Inf(1)
	}
	p.rounds, p.round = guardPace.rounds, guardPace.round
	t := newTable("goals", "Where headgate stands", "", []string{"measured", "floor", "goal", "guard"}, nil)
	t.After = floorsNote
	var lost []string

	for _, b := range bounds {
		row := t.row(b.name)
		row.Cells[2], row.Cells[3] = Figure(b.goal), Figure(b.max)

		switch cost, floor, err := b.measure(p, enough); {
		case errors.Is(err, errSkipped):
			continue
		case err != nil:
			row.fail("measured", err)
			lost = append(lost, b.name)
		default:
			row.Cells[0], row.Cells[1] = Figure(cost), Figure(floor)
			if cost > b.goal {
				lost = append(lost, b.name)
			}
		}
	}

	t.Note = goalsNote(len(t.Rows), lost)
	return []Table{*t}, nil
}

// goalsNote says plainly which rows are lost.
func goalsNote(rows int, lost []string) string {
	note := "Costs of headgate: ratios to the rival that a row names, unless it names a unit; less is better. " +
		"The guard fails above its figure."
	if len(lost) == 0 {
		return note + fmt.Sprintf(" All %d rows are at their goal.", rows)
	}
	return note + fmt.Sprintf(" %d of %d rows miss their goal:\n\n* %s", len(lost), rows, strings.Join(lost, "\n* "))
}

// measure returns the cost of headgate, and that of the floor, which is NaN where the row has none.
// It measures again, and takes all turns together, until the cost is low enough or the attempts are
// used up: a machine under load makes a bound seem broken.
func (b *bound) measure(p pace, enough float64) (cost, floor float64, err error) {
	floor = math.NaN()
	if b.open == nil {
		cost, err = b.figure(p)
		return cost, floor, err
	}
	list, stop, err := b.open(p)
	if err != nil {
		return 0, floor, err
	}
	defer stop()

	costs, compared := make([][]float64, len(list)), len(list)
	if b.floor {
		compared--
	}
	for range attempts {
		for i, o := range contest(list, p.rounds) {
			if o.failed != nil {
				return 0, floor, fmt.Errorf("%s: %w", o.name, o.failed)
			}
			costs[i] = append(costs[i], o.first...)
		}
		if cost = relation(costs[:compared]); cost <= enough {
			break
		}
	}

	// The floor takes the place of headgate.
	if b.floor {
		floor = relation(slices.Concat(costs[compared:], costs[1:compared]))
	}
	return cost, floor, nil
}

// relation returns the ratio of the first cost to the second, both without the
// third, if there is one. It returns the lower of two ratios: that of the lowest costs
// of all rounds, to which other work of the machine can only add, and the median of
// the ratios of each round, in which lasting work adds to all costs. Both are higher
// for a slower headgate.
func relation(costs [][]float64) float64 {
	part := func(of func(i int) float64) float64 {
		common := 0.0
		if len(costs) > 2 {
			common = of(2)
		}

		// A rival that seems to cost nothing says nothing, so the bound counts as broken in this
		// attempt.
		if of(1) <= common {
			return math.Inf(1)
		}
		return (of(0) - common) / (of(1) - common)
	}

	var parts []float64
	for round := range costs[0] {
		parts = append(parts, part(func(i int) float64 { return costs[i][round] }))
	}

	return min(median(parts), part(func(i int) float64 { return slices.Min(costs[i]) }))
}

// costs turns decisions a second into the time of a decision.
func costs(list []contender) []contender {
	for i := range list {
		once := list[i].once
		list[i].once = func() ([]float64, error) {
			f, err := once()
			if err != nil {
				return nil, err
			}
			return []float64{1e9 / f[0]}, nil
		}
	}
	return list
}
