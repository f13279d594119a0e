package failover

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
)

// The list is that of the primary.
func TestBansAreThoseOfThePrimary(t *testing.T) {
	primary := memstore.MustNew(memstore.Options{Clock: func() int64 { return 1_000_000 }})
	s := MustNew(primary, Options{Fallback: memstore.MustNew(memstore.Options{})})
	defer s.Close()

	// The ban is imposed at the primary by another process.
	op := core.Op{Verb: core.Impose, Rule: "r", Key: "k", Limit: core.MustParseLimit("1/1h"),
		Ban: &core.Ban{Strikes: 1, Within: time.Minute, For: time.Minute, Max: time.Hour}}
	if err := primary.Apply(t.Context(), []core.Op{op}, make([]core.Decision, 1)); err != nil {
		t.Fatal(err)
	}

	if got, err := s.Report().Bans(t.Context(), []string{"r"}, 1); err != nil ||
		!slices.Equal(got, []core.Banned{{Rule: "r", Key: "k", Until: 61_000_000}}) {
		t.Errorf("%+v, %v", got, err)
	}

	// A primary without a list makes the report say so, instead of an empty list.
	plain := MustNew(struct{ core.Store }{primary}, Options{})
	defer plain.Close()
	if _, err := plain.Report().Bans(t.Context(), []string{"r"}, 1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}
