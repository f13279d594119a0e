package service

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// limitOf returns the limit that LookUp looks up a key with.
func (w *world) limitOf(name, key string) string {
	w.t.Helper()
	u, err := w.LookUp(w.t.Context(), w.admin, name, key)
	w.must(err)
	return u.Policy.LimitOf(key, w.clock.now()).String()
}

// debited is a policy with debt and plans, and an override of each kind beside it and in it.
func debited(w *world) policy.Policy {
	w.t.Helper()
	p := byUser("p")
	p.Limit, p.PlanBy = core.MustParseLimit("10/1m debt=1"), "claim"
	p.Plans = map[string]core.Limit{"pro": core.MustParseLimit("500/1m")}
	p.Overrides = map[string]policy.Override{"own": {Limit: core.MustParseLimit("20/1m debt=2")},
		"acme:own": {Limit: core.MustParseLimit("30/1m debt=3")}}
	p = w.create(p)
	for _, text := range []string{"acme:*=40/1m debt=4", "acme:b*=50/1m debt=5 until " + friday,
		"acme:beside=60/1m debt=6", "own=70/1m debt=7 until 2026-03-01T12:01:00Z"} {
		w.override("p", text)
	}
	return p
}

func TestKeyHasTheLimitOfItsOverride(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		debited(w)
		want := func(key, limit string) {
			t.Helper()
			equal(t, fmt.Sprintf("the limit of %s", key), w.limitOf("p", key), limit)
			k, err := w.KeyPolicy(t.Context(), w.admin, "p", key)
			if w.must(err); k.Applied.LimitOf(key, w.clock.now()).String() != limit {
				t.Errorf("%s: KeyPolicy has another limit than %s", key, limit)
			}
		}
		want("other", "10/1m debt=1")
		want("own", "70/1m debt=7")
		want("acme:own", "30/1m debt=3")
		want("acme:c", "40/1m debt=4")
		want("acme:bob", "50/1m debt=5")
		want("acme:beside", "60/1m debt=6")

		// What has ended counts no longer.
		w.clock.pass(time.Minute)
		want("own", "20/1m debt=2")
		w.clock.pass(7 * 24 * time.Hour)
		want("acme:bob", "40/1m debt=4")
	})
}

// A debit fits into the limit that the key has, and where a key has one it is no matter of plans.
func TestDebitGoesByTheOverride(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		debited(w)
		for key, most := range map[string]int64{"own": 77, "acme:own": 33, "acme:c": 44, "acme:bob": 55} {
			if _, err := w.DebitKey(t.Context(), w.admin, "p", key, most); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			wantFault(t, key, errOf(w.DebitKey(t.Context(), w.admin, "p", key, most+1)), "units")
		}
		_, err := w.DebitKey(t.Context(), w.admin, "p", "other", 1)
		wantFault(t, "a key whose plan is not known", err, "policy")
	})
}

// Each action on a key has its limit: what it stores expires with it.
func TestActionsOnAKeyHaveItsLimit(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	debited(w)
	ctx, until := t.Context(), w.clock.now().Add(time.Hour)
	var limits []string
	w.asked(nil, func(op core.Op) { limits = append(limits, op.Limit.String()) })

	w.must(w.ResetKey(ctx, w.admin, "p", "acme:c"))
	w.must(w.LiftBan(ctx, w.admin, "p", "acme:c"))
	w.must(w.RevokeKey(ctx, w.admin, "p", "acme:c"))
	w.must(w.GrantKey(ctx, w.admin, "p", "acme:c", 1, until))
	must(w.DebitKey(ctx, w.admin, "p", "acme:c", 1))
	_, _, err := w.LookUpEach(ctx, w.admin, "c", 9, func(policy.Policy) bool { return true },
		func(policy.Policy) string { return "acme:c" })
	w.must(err)
	if got := strings.Join(limits, ", "); got != strings.Repeat("40/1m debt=4, ", 5)+"40/1m debt=4" {
		t.Error(got)
	}
}

// A limit of its own that a key is given is in force, and one that is taken away is not, whether it
// stands in the policy, beside it, or in both.
func TestLimitKeyChangesWhatIsInForce(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		nine := &policy.Override{Limit: core.MustParseLimit("9/1m debt=9")}
		ends := &policy.Override{Limit: nine.Limit, Until: w.clock.now().Add(time.Hour)}
		debited(w)
		version := int64(1)

		for _, row := range []struct {
			key    string
			limit  *policy.Override
			want   string
			beside string // that the key has then
			newer  bool   // the policy has a new version
		}{
			{"own", nine, "9/1m debt=9", "9/1m debt=9", false},
			{"own", nine, "9/1m debt=9", "9/1m debt=9", false},
			{"own", ends, "9/1m debt=9", ends.String(), false},
			{"own", nil, "10/1m debt=1", "", true},
			{"own", nil, "10/1m debt=1", "", false},
			{"acme:beside", nil, "50/1m debt=5", "", false},
			{"acme:beside", nine, "9/1m debt=9", "", true},
			{"acme:own", nil, "40/1m debt=4", "", true},
			{"other", ends, "9/1m debt=9", "", true},
		} {
			k := must(w.KeyPolicy(t.Context(), w.admin, "p", row.key))
			shown := must(k.WithLimit(row.limit))

			saved := must(w.LimitKey(t.Context(), w.admin, "p", row.key, row.limit, version))
			if row.newer {
				version++
			}
			after := must(w.KeyPolicy(t.Context(), w.admin, "p", row.key))
			beside := ""
			if after.Beside != nil {
				beside = after.Beside.String()
			}
			if got := w.limitOf("p", row.key); got != row.want || beside != row.beside || saved.Version != version ||
				shown.LimitOf(row.key, w.clock.now()).String() != row.want {
				t.Errorf("%s with %v has %s, beside %q, version %d, and was shown %s; want %+v", row.key, row.limit,
					got, beside, saved.Version, shown.LimitOf(row.key, w.clock.now()), row)
			}
		}

		// A page that shows another version of the policy changes nothing.
		w.override("p", "late=5/1m")
		_, err := w.LimitKey(t.Context(), w.admin, "p", "late", nine, 1)
		wantConflict(t, "an old version", err, 1, version)
		viewer := w.person("v", map[string]Role{"a": Viewer})
		wantErr(t, "a viewer", errOf(w.LimitKey(t.Context(), viewer, "p", "late", nine, version)), ErrDenied)
		wrong := &policy.Override{Limit: core.MustParseLimit("5/1m fixed-window")}
		_, err = w.LimitKey(t.Context(), w.admin, "p", "late", wrong, version)
		wantFault(t, "another algorithm", err, "limit")
		past := &policy.Override{Limit: nine.Limit, Until: w.clock.now()}
		_, err = w.LimitKey(t.Context(), w.admin, "p", "late", past, version)
		wantFault(t, "an end in the past", err, "limit")
		equal(t, "after mistakes", w.limitOf("p", "late"), "5/1m")
	})
}

// As many limits of keys as fit into a policy are no reason against one beside it.
func TestLimitKeyBesideAFullPolicy(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	p := byUser("p")
	p.Overrides = map[string]policy.Override{}
	for i := range policy.MaxOverrides {
		p.Overrides[fmt.Sprint("k", i)] = policy.Override{Limit: p.Limit}
	}
	w.create(p)
	w.override("p", "late=5/1m")
	nine := &policy.Override{Limit: core.MustParseLimit("9/1m")}
	k, err := w.KeyPolicy(t.Context(), w.admin, "p", "late")
	w.must(err)
	must(k.WithLimit(nine))
	must(w.LimitKey(t.Context(), w.admin, "p", "late", nine, 1))
	var bad *InvalidError
	if k, err = w.KeyPolicy(t.Context(), w.admin, "p", "another"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.WithLimit(nine); !errors.As(err, &bad) {
		t.Errorf("a key too many: %v", err)
	}
}
