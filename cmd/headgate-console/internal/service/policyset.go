package service

import (
	"context"
	"slices"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
)

// policySet has all policies.
type policySet struct {
	list  []policy.Policy // by name
	sizes []int           // in bytes, of the published form of each
	at    map[string]int  // their places, by name
}

// policies returns all policies. Transactions that change none share what they read, so the set
// and the policies in it must not be changed.
func (a *action) policies() (policySet, error) {
	if a.sets == nil {
		set, _, err := readPolicies(a.Tx)
		return set, err
	}
	c, err := a.Counter(store.CounterPolicies)
	if err != nil {
		return policySet{}, err
	}
	return a.sets.get(a.ctx, struct{}{}, c.Value, func() (policySet, int, error) { return readPolicies(a.Tx) })
}

// readPolicies reads all policies. Together they weigh 1.
func readPolicies(t *store.Tx) (policySet, int, error) {
	rows, err := t.Policies()
	if err != nil {
		return policySet{}, 0, err
	}
	list, err := policiesOf(rows)
	if err != nil {
		return policySet{}, 0, err
	}

	set := policySet{list, make([]int, len(rows)), make(map[string]int, len(rows))}
	for i, row := range rows {
		set.sizes[i], set.at[row.Name] = row.Size, i
	}

	return set, 1, nil
}

// find returns the policy of a name, and whether there is one.
func (p policySet) find(name string) (policy.Policy, bool) {
	i, exists := p.at[name]
	if !exists {
		return policy.Policy{}, false
	}
	return p.list[i], true
}

// selected returns the policies that the actor sees and that a condition selects, by name.
func (a *action) selected(selects func(policy.Policy) bool) (list []policy.Policy, err error) {
	set, err := a.policies()
	for _, p := range set.list {
		if a.access.CanSee(p.Apps) && selects(p) {
			list = append(list, p)
		}
	}
	return list, err
}

// PoliciesOf returns all policies that list an application, or with "" all policies, that the
// actor sees, by name.
func (s *Service) PoliciesOf(ctx context.Context, a Actor, app string) ([]policy.Policy, error) {
	q := Query{App: app}
	if _, err := q.check(); err != nil {
		return nil, err
	}
	return answer(ctx, s, a, "policy.list", "policies", func(d *action) ([]policy.Policy, error) {
		return d.selected(lists(app))
	})
}

// lists returns whether a policy lists an application. Every policy lists "".
func lists(app string) func(policy.Policy) bool {
	return func(p policy.Policy) bool { return app == "" || slices.Contains(p.Apps, app) }
}
