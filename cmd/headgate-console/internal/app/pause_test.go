package app

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/policy"
)

// A pause ends while the console runs, and one that was due while it did not, after its start.
func TestAppEndsPauses(t *testing.T) {
	db := "sqlite://" + filepath.Join(t.TempDir(), "console.db")
	d := atDesk(t, "", db)
	d.save("p", "1/1s")
	version := int64(1)

	// The pause is over as soon as it begins, and the worker finds it with its next look.
	for _, restart := range []bool{false, true} {
		_, err := d.Service.PausePolicy(t.Context(), d.actor, "p", version, policy.Off, time.Microsecond)
		d.must(err)

		// The one that is overdue at a start is ended at once.
		if restart {
			d.must(d.Close())
			d = atDesk(t, "", db)
		}

		until(t, "the policy is in force again", func() bool {
			p, err := d.Service.Policy(t.Context(), d.actor, "p")
			version = p.Version
			return err == nil && p.Mode == policy.Enforce
		})
	}
}
