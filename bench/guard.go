package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
)

// errSlow means that headgate costs more than its bound, compared to a rival.
var errSlow = errors.New("headgate has become slow")

// bound is the highest cost of headgate, as a ratio to that of a rival that does
// the same work in turns with it.
type bound struct {
	name string
	max  float64

	// open returns headgate, the rival, and, if there is one, a contender for
	// the work that both have in common, which is subtracted. The first figure of
	// each is a cost.
	open func(p pace) (list []contender, stop func(), err error)
}

// guardPace is the pace of -guard: many short turns.
var guardPace = pace{rounds: 6, round: 20 * time.Millisecond}

// attempts is how often a bound is measured. The turns of all attempts count.
const attempts = 4

var errSkipped = errors.New("skipped")

// guard writes the result for every bound and returns errSlow if one was broken.
func guard(w io.Writer) error {
	broken := 0

	// A bound that cannot be measured is no failure, as where Redis is not installed.
	for _, b := range bounds {
		ratio, err := b.measure(guardPace)
		switch {
		case errors.Is(err, errSkipped):
			fmt.Fprintf(w, "skip  %s: %v\n", b.name, err)
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", b.name, err)
		case ratio > b.max:
			broken++
			fmt.Fprintf(w, "FAIL  %s: %.2f, at most %.2f\n", b.name, ratio, b.max)
			continue
		}
		fmt.Fprintf(w, "ok    %s: %.2f, at most %.2f\n", b.name, ratio, b.max)
	}

	// One run names all bounds that are broken, as a cause may show in some of them alone.
	if broken > 0 {
		return fmt.Errorf("%w: %d of %d bounds", errSlow, broken, len(bounds))
	}
	return nil
}

// measure returns the ratio of headgate's cost to the rival's.
func (b *bound) measure(p pace) (ratio float64, err error) {
	list, stop, err := b.open(p)
	if err != nil {
		return 0, err
	}
	defer stop()

	// A machine under load makes a bound seem broken. One attempt that keeps it is enough.
	costs := make([][]float64, len(list))
	for range attempts {
		for i, o := range contest(list, p.rounds) {
			if o.failed != nil {
				return 0, fmt.Errorf("%s: %w", o.name, o.failed)
			}
			costs[i] = append(costs[i], o.first...)
		}
		if ratio = relation(costs); ratio <= b.max {
			break
		}
	}

	return ratio, nil
}

// relation returns the ratio of the first cost to the second, both without the
// third, if there is one. It returns the lower of two ratios: that of the lowest costs
// of all rounds, to which other work of the machine can only add, and the median of
// the ratios of each round, in which lasting work adds to all costs. Both are higher
// for a slower headgate.
func relation(costs [][]float64) float64 {
	part := func(of func(i int) float64) float64 {
		floor := 0.0
		if len(costs) > 2 {
			floor = of(2)
		}

		// A rival that seems to cost nothing says nothing, so the bound counts as broken in this
		// attempt.
		if of(1) <= floor {
			return math.Inf(1)
		}
		return (of(0) - floor) / (of(1) - floor)
	}

	var parts []float64
	for round := range costs[0] {
		parts = append(parts, part(func(i int) float64 { return costs[i][round] }))
	}

	return min(median(parts), part(func(i int) float64 { return slices.Min(costs[i]) }))
}

// inMemory compares one of the works with a peer.
func inMemory(name, rival string, max float64) bound {
	return bound{"memory, " + name + ", to " + rival, max, func(p pace) ([]contender, func(), error) {
		return competeIn(name, p, memoryPeers, ours, rival)
	}}
}

// competeIn prepares two peers for one of the works.
func competeIn(name string, p pace, peers []memoryPeer, row, rival string) ([]contender, func(), error) {
	for _, w := range works() {
		if w.name == name {
			// The other peers are not opened: each would be filled with all keys first.
			peers = slices.DeleteFunc(slices.Clone(peers), func(m memoryPeer) bool {
				return m.name != row && m.name != rival
			})
			return only(compete(w, p, peers), row, rival), func() {}, nil
		}
	}
	return nil, nil, fmt.Errorf("there is no work %q", name)
}

// inHTTP compares the time that a row of headgate adds to allowed requests.
func inHTTP(id, row, rival string, max float64) bound {
	return bound{fmt.Sprintf("%s, allowed, %s to %s", id, row, rival), max, func(p pace) ([]contender, func(), error) {
		return only(contestOf(id).contenders(wide, http.StatusOK, p), row, rival, bare), func() {}, nil
	}}
}

// inHTTPRefused compares the whole time of refused requests.
func inHTTPRefused(id, rival string, max float64) bound {
	return bound{id + ", refused, to " + rival, max, func(p pace) ([]contender, func(), error) {
		return only(contestOf(id).contenders(narrow, http.StatusTooManyRequests, p), ours, rival), func() {}, nil
	}}
}

func contestOf(id string) *httpContest {
	for i := range httpContests {
		if httpContests[i].id == id {
			return &httpContests[i]
		}
	}
	panic("there is no contest " + id)
}

// inRedis compares the time of a decision, over all callers.
func inRedis(n int, rival string, max float64) bound {
	return bound{fmt.Sprintf("Redis, callers: %d, to %s", n, rival), max, func(p pace) ([]contender, func(), error) {
		addr, stop, err := startRedis()
		if errors.Is(err, errNoRedis) {
			return nil, nil, fmt.Errorf("%w: %w", errSkipped, err)
		}
		if err != nil {
			return nil, nil, err
		}
		list, closeAll := contenders(redisPeers, addr, n, p.round/4, 3*p.round)
		return costs(only(list, ours, rival)), func() { closeAll(); stop() }, nil
	}}
}

// inRules compares a decision under three rules with one under one rule.
func inRules(max float64) bound {
	return bound{"memory, three rules to one", max, func(p pace) ([]contender, func(), error) {
		var list []contender

		for _, n := range []int{3, 1} {
			worker, _, err := openMemoryRules("", n, steady)
			if err != nil {
				return nil, nil, err
			}

			list = append(list, contender{fmt.Sprintf("%d rules", n), func() ([]float64, error) {
				return callAll(worker, addresses(clients), 1, p.round)
			}})
		}

		return costs(list), func() {}, nil
	}}
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

// only picks contenders by name.
func only(list []contender, names ...string) []contender {
	var out []contender
	for _, name := range names {
		for _, c := range list {
			if c.name == name {
				out = append(out, c)
			}
		}
	}
	// A missing one would let the others take its place, and the ratio be that of other things.
	if len(out) != len(names) {
		panic("not all there: " + strings.Join(names, ", "))
	}
	return out
}
