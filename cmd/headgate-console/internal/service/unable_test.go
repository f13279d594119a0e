package service

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
)

// What instances say of policies comes from Redis, where anything may be: the actor sees what is
// about a policy of the application, in few and short lines.
func TestUnableIsBoundedAndOfWhatTheActorSees(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		owner := w.person("owner", map[string]Role{"a": Owner})
		w.create(sample("mine", "a"))
		w.create(sample("secret", "b"))

		bad := policy.Instance{ID: "i\x00" + strings.Repeat("x", 1000), App: "a", MoreLeftOut: 1 << 60}
		for _, name := range []string{"mine", "secret", "gone", "<b>"} {
			bad.LeftOut = append(bad.LeftOut, policy.LeftOut{Policy: name, Version: 1,
				Reason: "no\n" + strings.Repeat("y", 1000)})
		}
		other := policy.Instance{ID: "other", App: "b", LeftOut: []policy.LeftOut{{Policy: "secret", Reason: "x"}}}
		w.fleet.set(func(f *fakeFleet) { f.instances = []policy.Instance{bad, other} })

		list, more, err := w.Unable(t.Context(), owner)
		if err != nil || len(list) != 1 || more != policy.MaxPolicies {
			t.Fatalf("%+v and %d more, %v", list, more, err)
		}
		u := list[0]
		if u.Policy != "mine" || u.App != "a" || len(u.Reason) > maxUnableText || len(u.Instances[0]) > maxUnableText ||
			strings.ContainsAny(u.String(), "\n\x00") {
			t.Errorf("%+v", u)
		}

		// Of many reasons the first are returned, and those of one kind are one with few names.
		var many []policy.Instance
		for n := range 30 {
			many = append(many, policy.Instance{ID: fmt.Sprint("i", n), App: "a", LeftOut: []policy.LeftOut{
				{Policy: "mine", Version: int64(n % 15), Reason: "x"}}})
		}
		w.fleet.set(func(f *fakeFleet) { f.instances = many })
		if list, more, err = w.Unable(t.Context(), owner); err != nil || len(list) != maxUnable || more != 10 ||
			!slices.Equal(list[0].Instances, []string{"i0", "i15"}) {
			t.Errorf("%d and %d more, %+v, %v", len(list), more, list[0], err)
		}
	})
}
