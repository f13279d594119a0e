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

// queries returns usual queries of a long list.
func queries() map[string]Query {
	return map[string]Query{
		"first page":           {},
		"last page":            {Page: manyPolicies / DefaultPerPage},
		"search, few":          {Search: "CUSTOMER 4242 "},
		"search, many":         {Search: "customer", Sort: "-updated"},
		"search, none":         {Search: "zzz"},
		"by share refused":     {Sort: "-share"},
		"by refused, page 100": {Sort: "-refused", Page: 100},
		"refusing now":         {Refusing: true},
		"refusing, by share":   {Refusing: true, Sort: "-share", Changed: "week"},
		"search, filter, sort": {Search: "number 1", App: "b", Mode: "shadow", Sort: "-priority", Page: 3},
	}
}

func BenchmarkAListOfTenThousand(b *testing.B) {
	for engine, url := range map[string]func() string{
		"sqlite":  func() string { return sqliteURL(b) },
		"mariadb": func() string { return maria.Server(b).Database(b) },
	} {
		w := newWorld(b, url())
		w.fill()
		actors := map[string]Actor{"admin": w.admin, "viewer": w.person("v", map[string]Role{"a": Viewer, "b": Viewer})}
		for name, q := range queries() {
			for who, a := range actors {
				b.Run(engine+"/"+name+"/"+who, func(b *testing.B) {
					for b.Loop() {
						if _, err := w.Policies(b.Context(), a, q); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
		b.Run(engine+"/save", func(b *testing.B) { benchmarkSave(b, w) })
		b.Run(engine+"/snapshot", func(b *testing.B) {
			for b.Loop() {
				if _, _, err := w.Outbox().Snapshot(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchmarkSave(b *testing.B, w *world) {
	p, err := w.Policy(b.Context(), w.admin, "policy-00042")
	w.must(err)
	for b.Loop() {
		p.Priority = (p.Priority + 1) % 100
		if p, err = w.UpdatePolicy(b.Context(), w.admin, p); err != nil {
			b.Fatal(err)
		}
	}
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
