package main

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test"
)

// Each row names contenders that there are, which pass their exams and answer as the work expects.
func TestBoundsCanBeMeasured(t *testing.T) {
	seen := map[string]bool{}

	// What is measured says nothing after so short a time: it only has to be there.
	p := pace{rounds: 1, round: time.Microsecond, keys: 1000, life: 20 * time.Millisecond}
	for _, b := range bounds {
		if seen[b.name] {
			t.Errorf("%s stands there twice", b.name)
		}
		seen[b.name] = true
		if b.max < b.goal {
			t.Errorf("%s: the guard fails at %v, which is below the goal %v", b.name, b.max, b.goal)
		}
		if b.open == nil {
			continue
		}

		// Where Redis is not installed its rows are left out.
		list, stop, err := b.open(p)
		if errors.Is(err, errSkipped) {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", b.name, err)
			continue
		}
		for _, o := range contest(list, 1) {
			if o.failed != nil {
				t.Errorf("%s: %s: %v", b.name, o.name, o.failed)
			}
		}

		stop()
	}
}

func TestGuardCountsWhatIsBroken(t *testing.T) {
	figure := func(cost float64, err error) func(pace) (float64, error) {
		return func(pace) (float64, error) { return cost, err }
	}
	defer func(b []bound) { bounds = b }(bounds)
	bounds = []bound{
		{name: "at its goal", aim: at(1), figure: figure(1, nil)},
		{name: "above its goal", aim: missed(1, 2), figure: figure(1.5, nil)},
		{name: "above its bound", aim: missed(1, 2), figure: figure(2.5, nil)},
		{name: "away", aim: at(1), figure: figure(0, errSkipped)},
		{name: "out of order", aim: at(1), figure: figure(0, errRefused)},
	}

	// Each row has a line, whatever becomes of the others.
	var out strings.Builder
	err := guard(&out)
	if !errors.Is(err, errSlow) || !strings.Contains(err.Error(), "2 of 5") {
		t.Errorf("%v", err)
	}
	want := "ok    at its goal: 1.00, at most 1.00, goal 1.00\nok    above its goal: 1.50, at most 2.00, goal 1.00\n" +
		"FAIL  above its bound: 2.50, at most 2.00\nskip  away: skipped\nFAIL  out of order: " + errRefused.Error() + "\n"
	if out.String() != want {
		t.Errorf("%s", &out)
	}

	// The page says plainly which rows are lost, and has no figure for what was not measured.
	tables, err := goalsSection(quick)
	if err != nil {
		t.Fatal(err)
	}
	g := tables[0]
	if !strings.HasSuffix(g.Note, "3 of 5 rows miss their goal:\n\n* above its goal\n* above its bound\n* out of order") {
		t.Errorf("%s", g.Note)
	}
	if !math.IsNaN(g.figure("away", "measured")) || g.figure("above its goal", "measured") != 1.5 ||
		g.figure("above its goal", "goal") != 1 || g.figure("above its goal", "guard") != 2 {
		t.Errorf("%+v", g.Rows)
	}
}

// Fresh keys keep their slots for a second. Their heap comes back after it, which giveBack checks.
func TestBytesOfKeysAndTheirReturn(t *testing.T) {
	if !test.Alone(t) {
		return
	}

	p := pace{keys: 20_000, life: 50 * time.Millisecond}
	small, err := bytesOfKey(p, "100/1h", 1)
	if err != nil || small < 20 || small > 200 {
		t.Errorf("%v bytes, %v", small, err)
	}

	// The slot of a key has room for one of three leases, and each of the others takes 22 bytes.
	large, err := bytesOfKey(p, "3 concurrent ttl=1h", 3)
	if err != nil || large < small+2*22 {
		t.Errorf("%v bytes with three leases, %v without, %v", large, small, err)
	}

	r, err := giveBack(pace{keys: 100_000, life: time.Second}, 3)
	if err != nil || r.seconds < 1 || r.periods < 1 || r.decisions < 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
