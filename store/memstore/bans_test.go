package memstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// Bans lists what has not ended and was not lifted, of the rules asked for.
func TestBansAreListed(t *testing.T) {
	now := int64(1_000_000_000)
	s := MustNew(Options{Clock: func() int64 { return now }})

	ban := func(rule, key string, span time.Duration) core.Banned {
		t.Helper()
		op := core.Op{Verb: core.Impose, Rule: rule, Key: key, Limit: core.MustParseLimit("1/1h"),
			Ban: &core.Ban{Strikes: 1, Within: time.Minute, For: span, Max: time.Hour}}
		if err := s.Apply(t.Context(), []core.Op{op}, make([]core.Decision, 1)); err != nil {
			t.Fatal(err)
		}
		return core.Banned{Rule: rule, Key: key, Until: now + span.Microseconds()}
	}

	// A key that is too long for a slot is kept elsewhere and must be listed all the same.
	long := strings.Repeat("k", 100)
	b, a, c := ban("r", "b", time.Minute), ban("r", "a", time.Minute), ban("s", long, 2*time.Minute)
	short, _ := ban("r", "short", time.Second), ban("other", "a", time.Minute)

	lists := func(rules []string, most int, want ...core.Banned) {
		t.Helper()
		if got, err := s.Report().Bans(t.Context(), rules, most); err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}

	// The ban that ends last comes first, and equal ends are in the order of their keys. The fourth
	// ban is of a rule that is not asked for.
	lists([]string{"r", "s"}, 10, c, a, b, short)
	lists([]string{"r", "s"}, 2, c, a)
	lists([]string{"r"}, 0)
	lists(nil, 10)

	// The short ban ends at its instant, not a microsecond before.
	now += time.Second.Microseconds() - 1
	lists([]string{"r"}, 10, a, b, short)
	now++
	lists([]string{"r"}, 10, a, b)

	// A Lift takes a ban from the list at once.
	lift := core.Op{Verb: core.Lift, Rule: "r", Key: "a", Limit: core.MustParseLimit("1/1h")}
	if err := s.Apply(t.Context(), []core.Op{lift}, make([]core.Decision, 1)); err != nil {
		t.Fatal(err)
	}
	lists([]string{"r"}, 10, b)

	// A long list is given up when its caller has left.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Report().Bans(ctx, []string{"r"}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v after the caller has left", err)
	}
}
