package limiter_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

// owing are rules of which some have a debt: the others are left out.
func owing(t testing.TB) []limiter.Rule {
	most := rule(t, "most", "10/1h debt=3")
	most.CostAtMost = true
	shadow := withOnLimit(rule(t, "shadow", "10/1h fixed-window"), limiter.Shadow)
	own := rule(t, "own", "9/1h sliding-log")
	own.Override = brought
	return []limiter.Rule{
		most, rule(t, "log", "10/1h sliding-log"), shadow, rule(t, "streams", "2 concurrent ttl=1m"), own,
	}
}

func TestDebitChargesBeyondTheLimit(t *testing.T) {
	var flows []events.Units
	s := newStore()
	l := configured(t, limiter.Config{Store: s, Rules: owing(t),
		Hooks: &events.Hooks{Units: func(u events.Units) { flows = append(flows, u) }}})

	list, err := l.Debit(withLimit(t.Context(), limit(t, "4/1h")), "k", 12)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range list {
		got = append(got, fmt.Sprint(d.Rule, " ", d.Decision.Taken, " ", d.Decision.Remaining))
	}
	if want := []string{"most 12 0", "shadow 12 0", "own 8 0"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	// One step, told once for each rule, whatever CostAtMost says.
	if s.calls != 1 || len(flows) != 3 ||
		flows[0] != (events.Units{Rule: "most", Key: "k", Flow: events.Debited, Units: 12}) {
		t.Errorf("%d calls, %+v", s.calls, flows)
	}

	// The debt is full with one unit more.
	list, err = l.Debit(t.Context(), "k", 5)
	if err != nil || list[0].Decision.Taken != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestDebitLeavesExemptAndDeniedKeys(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "other", "9/1h"), listed(t, "a", "9/1h"))
	for key, want := range map[string]int{"carol": 1, "mallory": 1, "bob": 2} {
		if list, err := l.Debit(t.Context(), key, 1); err != nil || len(list) != want {
			t.Errorf("%s: %+v, %v", key, list, err)
		}
	}
}

func TestDebitNamesWhatItCannotDo(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "log", "10/1h sliding-log"))
	_, none := l.Debit(t.Context(), "k", 1)
	_, negative := l.Debit(t.Context(), "k", -1)
	for want, err := range map[string]error{
		"invalid operation: no rule in force has a limit with a debt": none,
		"invalid operation: the cost -1 is negative":                  negative,
	} {
		if !errors.Is(err, core.ErrOp) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}

	broken := newLimiter(t, brokenStore(func() error { return errDown }), rule(t, "a", "1/1h"))
	if _, err := broken.Debit(t.Context(), "k", 1); !errors.Is(err, errDown) {
		t.Error(err)
	}
}
