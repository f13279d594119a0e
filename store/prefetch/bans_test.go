package prefetch

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
)

// The list is that of the store behind.
func TestBansAreThoseOfTheStoreBehind(t *testing.T) {
	primary := memstore.MustNew(memstore.Options{Clock: func() int64 { return 1_000_000 }})
	s, err := New(primary, Options{Units: 5})
	if err != nil {
		t.Fatal(err)
	}

	// The ban is imposed behind the instance's back, at the first second of the clock.
	op := core.Op{Verb: core.Impose, Rule: "r", Key: "k", Limit: core.MustParseLimit("1/1h"),
		Ban: &core.Ban{Strikes: 1, Within: time.Minute, For: time.Minute, Max: time.Hour}}
	if err := primary.Apply(t.Context(), []core.Op{op}, make([]core.Decision, 1)); err != nil {
		t.Fatal(err)
	}

	if got, err := s.Report().Bans(t.Context(), []string{"r"}, 1); err != nil ||
		!slices.Equal(got, []core.Banned{{Rule: "r", Key: "k", Until: 61_000_000}}) {
		t.Errorf("%+v, %v", got, err)
	}

	// A store that has no list makes the report say so, instead of an empty list.
	plain, err := New(struct{ core.Store }{primary}, Options{Units: 5})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plain.Report().Bans(t.Context(), []string{"r"}, 1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}
