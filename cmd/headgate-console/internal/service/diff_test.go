package service

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

func TestDiffShowsPlansAndAccess(t *testing.T) {
	a := sample("p", "a")
	b := a
	b.Plans = map[string]core.Limit{"pro": core.MustParseLimit("9/1m"), "free": core.MustParseLimit("3/1m burst=2")}
	b.PlanBy = "claim"
	b.Access = policy.Access{
		Allow: policy.Callers{Networks: []string{"10.0.0.0/8", "192.0.2.7"}, Keys: []string{"carol"}},
		Deny:  policy.Callers{Networks: []string{"10.6.0.0/16"}, Keys: []string{"mallory"}}, DenyOthers: true,
		DenyStatus: 429,
	}
	want := []Change{
		{"plans", "", "free: 3/1m burst=2, pro: 9/1m"},
		{"plan_by", "", "claim"},
		{"access", "",
			"allow 10.0.0.0/8, 192.0.2.7; allow key carol; deny 10.6.0.0/16; deny key mallory; deny others; status 429"},
	}
	if got := Diff(a, b); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
