package core_test

import (
	"reflect"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

func selected(t *testing.T, s core.Selection) *core.Admission {
	t.Helper()
	l := gatetest.Limiter(t, core.Config{OnStoreError: core.FailClosed})
	var rules []core.Rule
	for _, name := range []string{"a", "b", "c"} {
		r := gatetest.Rule(t, "5/1m")
		r.Name = name
		rules = append(rules, r)
	}
	if err := l.SetSelectedRules(rules, s); err != nil {
		t.Fatal(err)
	}
	return l.Admit(&fakeRequest{})
}

func TestOnlySelectedRulesAreAsked(t *testing.T) {
	for _, c := range []struct {
		s    core.Selection
		want []string
	}{
		{nil, []string{"a", "b", "c"}},
		{func(_ core.Request, into []int) []int { return append(into, 0, 2) }, []string{"a", "c"}},
		{func(_ core.Request, into []int) []int { return into }, nil},
	} {
		var got []string
		for _, d := range selected(t, c.s).Grant().Decisions() {
			got = append(got, d.Rule)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}

func TestASelectionThatMakesNoSenseFails(t *testing.T) {
	for name, s := range map[string]core.Selection{
		"panic":   func(core.Request, []int) []int { panic("x") },
		"unknown": func(core.Request, []int) []int { return []int{3} },
		"below":   func(core.Request, []int) []int { return []int{-1} },
		"twice":   func(core.Request, []int) []int { return []int{1, 1} },
	} {
		if got := selected(t, s).Outcome(); got != core.Failed {
			t.Errorf("%s: %v", name, got)
		}
	}
}
