package keylimit

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memstore"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// published is a source of one policy with overrides beside it.
type published struct {
	policy policy.Policy
	beside Beside
}

func (p published) Load(context.Context, string) (policy.Snapshot, error) {
	return policy.Snapshot{Version: "1", Policies: policy.Set{p.policy}}, nil
}

func (p published) OverrideChanges(_ context.Context, known string) (policy.OverrideChanges, error) {
	return policy.OverrideChanges{Version: "1", Missed: known != "1", Stale: []string{p.policy.Name}}, nil
}

func (p published) ReadOverrides(_ context.Context, name string, add func([]policy.OverrideChange)) error {
	for key, o := range p.beside {
		add([]policy.OverrideChange{{Policy: name, Key: key, Text: o.String()}})
	}
	return nil
}

// instance returns what says the limit of a key in an instance that follows the source.
func instance(t *testing.T, p published) func(key string) core.Limit {
	t.Helper()

	// Its counts are its own, and only its limits matter.
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(limiter.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })

	user := keyfuncs.UserID(func(context.Context) (string, bool) { return "", false })
	f, err := policy.Follow(t.Context(), l, "shop", policy.Bindings{User: user}, p,
		policy.Options{Poll: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })

	return func(key string) core.Limit {
		list, err := l.Peek(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return list[0].Limit
	}
}

// keys are those that begin with each other, also in the middle of a letter.
var keys = []string{"a", "ab", "abc", "abcd", "ä", "äb", "\xc3", "\xc3b", "a*", "ab*", "*", "b", "日本", "日本語"}

// random returns overrides of some keys and prefixes. Each has a limit of its own, or one that the
// policy cannot have, and some have ended.
func random(r *rand.Rand, quota int, fit bool) Beside {
	b := Beside{}
	for i, key := range strings.Fields("a a* a** ab ab* ab** abc abc* ä* äb b * 日* 日本* 日本語") {
		o := policy.Override{Limit: core.Limit{Quota: int64(quota + i), Period: time.Minute}}

		// Some are not there, have ended, will end, or cannot be in force.
		switch r.IntN(6) {
		case 0, 1:
			continue
		case 2:
			o.Until = time.Now().Add(-time.Hour).Truncate(time.Microsecond)
		case 3:
			o.Until = time.Now().Add(time.Hour).Truncate(time.Microsecond)
		case 4:
			if !fit {
				o.Limit.Algorithm = core.FixedWindow
			}

			// The ban of a limit that cannot be in force stays, and comes before shorter prefixes.
			if !fit && r.IntN(2) == 0 {
				o.BannedUntil = time.Now().Add(time.Hour).Truncate(time.Second)
			}
		}

		b[key] = o
	}

	return b
}

// What Apply says is what an instance decides with, for overrides in a policy and beside it, of
// keys and prefixes, with and without an end, and such as the policy cannot have.
func TestApplyIsWhatInstancesDo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	sources := map[string]int{}
	for range 300 {
		p := policy.Policy{Name: "p", Apps: []string{"shop"}, Key: "user",
			Limit: core.Limit{Quota: 7, Period: time.Minute}, Overrides: random(r, 100, true)}
		if r.IntN(5) == 0 { // whose keys have no prefixes
			p.Key, p.Overrides = "ip", nil
		}
		if len(p.Overrides) == 0 {
			p.Overrides = nil
		}
		beside := random(r, 1000, false)

		// Each limit says by its quota where it stands.
		limitOf, before := instance(t, published{p, beside}), fmt.Sprint(p)

		for _, key := range keys {
			var some Beside // are all that are needed
			for pattern, o := range beside {
				if slices.Contains(Patterns(key), pattern) {
					some = some.With(pattern, o)
				}
			}

			// The instance is asked after the time was read, and nothing ends within the hour.
			now := time.Now()
			want := limitOf(key)
			all, few := beside.Apply(p, key, now), some.Apply(p, key, now)
			if got, also := inForce(&all, key, now), inForce(&few, key, now); got != want || also != want {
				t.Fatalf("%q: %s and %s, an instance has %s\nin the policy %v\nbeside %v", key, got, also, want,
					p.Overrides, beside)
			}

			switch {
			case want.Quota >= 1000:
				sources["beside"]++
			case want.Quota >= 100:
				sources["in"]++
			default:
				sources["none"]++
			}
		}

		if after := fmt.Sprint(p); after != before {
			t.Fatalf("the policy was changed from %s to %s", before, after)
		}
	}

	// Otherwise the overrides that were drawn say little.
	if len(sources) != 3 {
		t.Errorf("only %v were tried", sources)
	}
}

// inForce returns the limit that an instance peeks at: of a banned key, that of the policy.
func inForce(p *policy.Policy, key string, at time.Time) core.Limit {
	if at.Before(p.BanOf(key, at)) {
		return p.Limit
	}
	return p.LimitOf(key, at)
}

func TestLimitsHasEachOnce(t *testing.T) {
	one, two := core.MustParseLimit("1/1m"), core.MustParseLimit("2/1m")
	b := Beside{"a": {Limit: one}, "b": {Limit: one, Until: time.Now()}, "c*": {Limit: two}}
	got := b.Limits()
	slices.SortFunc(got, func(a, b core.Limit) int { return int(a.Quota - b.Quota) })
	if !slices.Equal(got, []core.Limit{one, two}) {
		t.Error(got)
	}
}
