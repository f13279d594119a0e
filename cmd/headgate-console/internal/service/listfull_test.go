package service

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

// manyPolicies is the largest number of policies in a set.
const manyPolicies = policy.MaxPolicies

// fill inserts manyPolicies policies.
func (w *world) fill() {
	w.t.Helper()
	var set policy.Set
	for i := range manyPolicies {
		p := sample(fmt.Sprintf("policy-%05d", i), []string{"a", "b", "c"}[i%3])
		p.Description = fmt.Sprintf("Limits whatever the customer %d may do with our service number %d.",
			i*7919%manyPolicies, i%97)
		p.Mode, p.Priority = policy.Mode(i%3), i%11
		set = append(set, p)
	}

	data := must(policy.EncodeJSON(set))
	must(w.Import(w.t.Context(), w.admin, Import{Data: data, Format: JSON}))
}

func TestCreatePolicyRefusesOneTooMany(t *testing.T) {
	test.Long(t, "it writes ten thousand policies into each database")
	everyEngine(t, func(t *testing.T, w *world) {
		w.fill()

		// The bound holds for every way to add a policy.
		wantFault(t, "one more", errOf(w.CreatePolicy(t.Context(), w.admin, sample("one-more", "a"))), "")
		wantFault(t, "one more", errOf(w.Import(t.Context(), w.admin, importOf(t, sample("one-more", "a")))), "")

		set, _, err := w.Outbox().Snapshot(t.Context())
		w.must(err)
		equal(t, "policies", len(set), manyPolicies)

		// The largest set can be published, or the bound would be too high.
		if _, err := policy.EncodeJSON(set); err != nil {
			t.Errorf("the set cannot be published: %v", err)
		}
		if _, err := w.Export(t.Context(), w.admin, JSON, ""); err != nil && !errors.As(err, new(*InvalidError)) {
			t.Error(err)
		}
	})
}
