package limiter_test

import (
	"reflect"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/limiter"
)

func selected(t *testing.T, s limiter.Selection) *limiter.Admission {
	t.Helper()
	l := gatetest.Limiter(t, limiter.Config{OnStoreError: limiter.FailClosed})
	var rules []limiter.Rule
	for _, name := range []string{"a", "b", "c"} {
		r := gatetest.Rule("5/1m")
		r.Name = name
		rules = append(rules, r)
	}
	if err := l.SetSelectedRules(rules, s); err != nil {
		t.Fatal(err)
	}
	return l.Admit(get())
}

func TestSelectionAsksOnlySelectedRules(t *testing.T) {
	for _, c := range []struct {
		s    limiter.Selection
		want []string
	}{
		{nil, []string{"a", "b", "c"}},
		{func(_ core.Request, into []int) []int { return append(into, 0, 2) }, []string{"a", "c"}},
		{func(_ core.Request, into []int) []int { return into }, nil},
	} {
		var got []string
		for _, d := range selected(t, c.s).Result().Decisions() {
			got = append(got, d.Rule)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}

func TestSelectionThatIsInvalidFails(t *testing.T) {
	for name, s := range map[string]limiter.Selection{
		"panic":   func(core.Request, []int) []int { panic("x") },
		"unknown": func(core.Request, []int) []int { return []int{3} },
		"below":   func(core.Request, []int) []int { return []int{-1} },
		"twice":   func(core.Request, []int) []int { return []int{1, 1} },
	} {
		if got := selected(t, s).Outcome(); got != limiter.Failed {
			t.Errorf("%s: %v", name, got)
		}
	}
}
