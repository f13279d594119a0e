package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/core"
)

// workers is how many histories Diff plays at once. It exceeds the cores of most
// machines, because stores across a network mostly wait.
const workers = 8

// Diff sends random histories, each on keys of its own, through stores of each
// factory and compares every field of every decision with those of the
// first. The histories follow from the seed. A difference is reported as the
// shortest timeline found that shows it, in the form that [Play] reads, with
// the answers of the first store. Under go test -short a tenth of the histories are
// sent.
func Diff(t *testing.T, histories int, seed uint64, factories ...Factory) {
	t.Helper()
	if testing.Short() {
		histories /= 10
	}
	if report := difference(t, families(), histories, seed, factories, (*differ).report); report != "" {
		t.Error(report)
	}
}

// DiffEach is [Diff] over as many histories, in each of which all limits are of one
// algorithm, and of each algorithm as many. It plays one of each at least.
func DiffEach(t *testing.T, histories int, seed uint64, factories ...Factory) {
	t.Helper()
	var all []core.Algorithm
	for _, family := range families() {
		if a := family[0].Algorithm; !slices.Contains(all, a) {
			all = append(all, a)
		}
	}

	each := max(1, histories/len(all))
	for _, a := range all {
		if report := difference(t, familiesOf(a), each, seed, factories, (*differ).report); report != "" {
			t.Errorf("%s: %s", a, report)
		}
	}
}

// Difference is [Diff] for a test that expects a difference: it returns the
// first one found, or "" if the stores agree. It does not look for the shortest timeline,
// which takes as long as many histories.
func Difference(t testing.TB, histories int, seed uint64, factories ...Factory) string {
	t.Helper()
	return difference(t, families(), histories, seed, factories, briefly)
}

// DifferenceUnder is [Difference] over histories in which all limits are of one algorithm.
func DifferenceUnder(t testing.TB, a core.Algorithm, histories int, seed uint64, factories ...Factory) string {
	t.Helper()
	return difference(t, familiesOf(a), histories, seed, factories, briefly)
}

// familiesOf returns the families of one algorithm.
func familiesOf(a core.Algorithm) [][]core.Limit {
	return slices.DeleteFunc(families(), func(family []core.Limit) bool { return family[0].Algorithm != a })
}

// A reporter writes a difference down, which the last of the steps shows.
type reporter func(d *differ, steps []step, difference string) string

func briefly(_ *differ, _ []step, difference string) string { return difference }

// difference plays the histories and returns the first difference that is found, or "".
func difference(t testing.TB, families [][]core.Limit, histories int, seed uint64, factories []Factory,
	report reporter) string {

	t.Helper()
	var next atomic.Int64
	var found atomic.Pointer[string]
	var wg sync.WaitGroup
	for w := range workers {
		d := newDiffer(t, families, seed, fmt.Sprintf("w%d", w), factories)
		d.write = report

		// A worker takes the next number when it is done, since histories differ in length.
		wg.Go(func() {
			for found.Load() == nil {
				n := next.Add(1) - 1
				if n >= int64(histories) {
					return
				}

				if report := d.run(uint64(n)); report != "" {
					next.Store(int64(histories)) // no other begins a history
					report = fmt.Sprintf("seed %d, history %d: %s", seed, n, report)
					found.CompareAndSwap(nil, &report)
				}
			}
		})
	}
	wg.Wait()

	if report := found.Load(); report != nil {
		return *report
	}
	return ""
}

// A differ compares stores that share a clock.
type differ struct {
	seed     uint64
	families [][]core.Limit
	name     string // of the worker
	clock    *Clock
	stores   []core.Store
	forward  bool // no history steps back
	fixed    bool // no limit changes
	write    reporter
	runs     int
}

func newDiffer(t testing.TB, families [][]core.Limit, seed uint64, name string, factories []Factory) *differ {
	d := &differ{seed: seed, families: families, name: name, clock: NewClock(), write: (*differ).report}
	for _, f := range factories {
		d.stores = append(d.stores, f(t, d.clock))
	}
	return d
}

// players returns a player for each store, on keys that were never used.
func (d *differ) players() []*player {
	d.runs++
	ps := make([]*player, len(d.stores))
	for i, s := range d.stores {
		ps[i] = newPlayer(s, d.clock, fmt.Sprintf("%s-%d-", d.name, d.runs))
	}
	return ps
}

// run plays history n and reports how the stores differ, or "".
func (d *differ) run(n uint64) string {
	h := newHistory(d.families, d.seed, n)
	h.forward, h.fixed = d.forward, d.fixed
	ps := d.players()

	// A step follows from the answers before: its instant often is one that they have named.
	var steps []step
	for range 20 + h.r.IntN(20) {
		steps = append(steps, h.next())
		s := &steps[len(steps)-1]
		want, difference := compare(ps, s)
		if difference != "" {
			return d.write(d, steps, difference)
		}
		h.learn(want)
	}
	return ""
}

// compare plays the step on every store. Errors have to agree: all stores
// return one or none does.
func compare(ps []*player, s *step) (want []core.Decision, difference string) {
	want, err := ps[0].play(s)
	for i, p := range ps[1:] {
		got, other := p.play(s)
		if (err == nil) != (other == nil) {
			return want, fmt.Sprintf("store 1 has error %v, store %d has %v", err, i+2, other)
		}
		if !slices.EqualFunc(want, got, same) {
			return want, fmt.Sprintf("store %d answered %s", i+2, decisionsText(got))
		}
	}
	return want, ""
}

// report shortens the steps, of which the last is answered differently, and
// writes them as a timeline.
func (d *differ) report(steps []step, difference string) string {
	// Whatever can be left out is left out, until each step is needed to show a difference.
	shortest := steps
	for shorten := true; shorten; {
		shorten = false
		for i := range len(shortest) {
			shorter := without(shortest, i)
			if len(shorter) == 0 {
				continue
			}
			if differs, _, _ := d.replay(shorter); differs > 0 {
				shortest, shorten = shorter[:differs], true
				break
			}
		}
	}

	// A difference that depends on the time that calls take may not come again.
	differs, answers, again := d.replay(shortest)
	if differs > 0 {
		difference = again
	} else {
		difference += " (but not when these steps are played again)"
	}
	return fmt.Sprintf("%s\n%s", difference, strings.TrimSpace(timeline(shortest, answers)))
}

// without returns steps less step i and less the refunds of its takes.
func without(steps []step, i int) []step {
	gone := map[string]bool{}
	for _, c := range steps[i].ops {
		gone[c.label] = c.label != ""
	}

	var kept []step
	for j, s := range steps {
		if j == i {
			continue
		}
		s.ops = slices.DeleteFunc(slices.Clone(s.ops), func(c call) bool { return gone[c.of] })
		if len(s.ops) > 0 {
			kept = append(kept, s)
		}
	}
	return kept
}

// replay returns the number of the first step that is answered differently, or
// 0, and the answers of the first store up to that step.
func (d *differ) replay(steps []step) (differs int, answers [][]core.Decision, difference string) {
	ps := d.players()
	for i := range steps {
		want, difference := compare(ps, &steps[i])
		answers = append(answers, slices.Clone(want))
		if difference != "" {
			return i + 1, answers, difference
		}
	}
	return 0, answers, ""
}
