package app

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// A pause ends while the console runs, and one that was due while it did not, after its start.
func TestAppEndsPauses(t *testing.T) {
	c := config.Config{DB: "sqlite://" + filepath.Join(t.TempDir(), "console.db")}
	a := open(t, c)
	admin, ctx := administrator(t, a), t.Context()
	if err := a.Service.CreateApp(ctx, admin, "a", ""); err != nil {
		t.Fatal(err)
	}
	p, err := a.Service.CreatePolicy(ctx, admin, policy.Policy{Name: "p", Apps: []string{"a"}, Key: "ip",
		Limit: core.Limit{Quota: 1, Period: time.Second}})
	if err != nil {
		t.Fatal(err)
	}

	// The pause is over as soon as it begins, and the worker finds it with its next look.
	for _, restart := range []bool{false, true} {
		p, err = a.Service.PausePolicy(ctx, admin, "p", p.Version, policy.Off, time.Microsecond)
		if err != nil {
			t.Fatal(err)
		}

		// The one that is overdue at a start is ended at once.
		if restart {
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			a = open(t, c)
		}

		until(t, "the policy is in force again", func() bool {
			p, err = a.Service.Policy(ctx, admin, "p")
			return err == nil && p.Mode == policy.Enforce
		})
	}
}
