package service

import (
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// TestPoliciesAreReadOnce checks that transactions which change no policy share the policies, also
// those that write, as a look-up of a key does for the audit log.
func TestPoliciesAreReadOnce(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(sample("p", "a"))
		var first policySet
		w.must(w.ask(t.Context(), w.admin, "policy.list", "policies", func(d *action) (err error) {
			first, err = d.policies()
			return err
		}))

		// The counter of policies comes last, since raising it ends what was read before.
		for _, row := range []struct {
			lock   string
			shares bool
		}{{store.CounterUsers, true}, {store.CounterOverrides, true}, {store.CounterPolicies, false}} {
			w.must(w.act(t.Context(), w.admin, row.lock, "policy.list", "policies", func(d *action) error {
				set, err := d.policies()
				if err == nil && (&set.list[0] == &first.list[0]) != row.shares {
					t.Errorf("a transaction with the counter %s shares: %t", row.lock, !row.shares)
				}
				return err
			}))
		}
	})
}

// TestAChangeEndsWhatWasRead checks that a transaction which writes sees what was created before.
func TestAChangeEndsWhatWasRead(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		for n, name := range []string{"p", "q"} {
			w.create(sample(name, "a"))
			w.must(w.act(t.Context(), w.admin, store.CounterUsers, "policy.list", "policies", func(d *action) error {
				set, err := d.policies()
				equal(t, "policies", len(set.list), n+1)
				return err
			}))
		}
	})
}

// TestWhatIsRolledBackIsNotShared checks that a transaction which changes policies, and began as
// one that changes none, keeps what it wrote from others.
func TestWhatIsRolledBackIsNotShared(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(sample("p", "a"))
		err := w.act(t.Context(), w.admin, store.CounterOverrides, "policy.update", "policy:p", func(d *action) error {
			w.must(d.RaiseCounter(store.CounterPolicies, d.now))
			w.must(d.DeletePolicy("p", 1))
			set, err := d.policies()
			w.must(err)
			equal(t, "policies in the transaction", len(set.list), 0)
			return errUnchanged
		})
		w.must(err)

		// The next change has the version that the one before would have had.
		w.create(sample("q", "a"))
		w.must(w.ask(t.Context(), w.admin, "policy.list", "policies", func(d *action) error {
			set, err := d.policies()
			equal(t, "policies", len(set.list), 2)
			return err
		}))
	})
}
