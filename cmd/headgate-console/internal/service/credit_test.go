package service

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// A grant and a debit are in the audit log, with their figures, before Redis is asked.
func TestCreditIsInTheAuditLogFirst(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		secret := sample("p", "a")
		secret.Key = "api-key"
		w.create(secret)
		owner := w.person("x", map[string]Role{"a": Owner})
		until := time.UnixMicro(w.now()).Add(time.Hour).Truncate(time.Second)
		key := auth.Digest("s3cret")[:22]

		digest := `{"key_sha256":"` + auth.Digest(key) + `"`
		wants := map[string]string{
			"key.grant":  digest + `,"units":500,"until":"` + until.UTC().Format(time.RFC3339) + `"}`,
			"key.revoke": digest + `}`,
			"key.debit":  digest + `,"units":20}`,
		}
		written := func(action string) {
			rows := w.entries(AuditQuery{Action: action})
			if len(rows) != 1 || rows[0].Actor != "x" || rows[0].Object != "policy:p" || rows[0].Outcome != Done ||
				rows[0].After != wants[action] {
				t.Errorf("%s: the audit log has %+v, want %s", action, rows, wants[action])
			}
		}

		w.asked(nil, func(op core.Op) { written("key." + op.Verb.String()) })
		w.must(w.GrantKey(t.Context(), owner, "p", key, 500, until))
		w.must(w.RevokeKey(t.Context(), owner, "p", key))
		charged, err := w.DebitKey(t.Context(), owner, "p", key, 20)
		if err != nil || charged != 20 || len(w.entries(AuditQuery{Action: "key.debit"})) != 1 {
			t.Errorf("%d, %v", charged, err)
		}
	})
}

// What the store refuses, or charges in part, or does not answer, is a second row.
func TestCreditThatFailsIsInTheAuditLog(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(sample("p", "a"))
	now := time.UnixMicro(w.now())
	until := now.Add(time.Hour)
	note := func(action string) string {
		t.Helper()
		rows := w.entries(AuditQuery{Action: action})
		if len(rows) < 2 || rows[0].Outcome != Refused || rows[1].Outcome != Done {
			t.Fatalf("%+v", rows)
		}
		return rows[0].Note
	}

	// The clock of Redis may be another than that of the console.
	for _, row := range []struct {
		d           core.Decision
		field, want string
	}{
		{core.Decision{At: until.UnixMicro()}, "until", "the clock of Redis says " + until.UTC().Format(time.RFC3339)},
		{core.Decision{At: now.Add(-maxGrantSpan).UnixMicro()}, "until", tooFar + " by the clock of Redis"},
		{core.Decision{At: now.UnixMicro(), Credit: MaxUnits - 4}, "units", "with the 9007199254740987 that are left"},
		{core.Decision{At: now.UnixMicro(), Credit: MaxUnits - 5}, "until", "the key has 8 grants with other ends"},
	} {
		w.fleet.op = func(core.Op) (core.Decision, error) { return row.d, nil }
		err := w.GrantKey(t.Context(), w.admin, "p", "192.0.2.7", 5, until)
		wantFault(t, row.want, err, row.field)
		if said := note("key.grant"); err == nil || !strings.Contains(err.Error(), row.want) ||
			said != "it was refused, and the key is as it was: "+err.Error() {
			t.Errorf("%v, and the audit log has %q, want %q", err, said, row.want)
		}
	}

	away := errors.New("away")
	w.asked(away, nil)
	wantErr(t, "a grant", w.GrantKey(t.Context(), w.admin, "p", "192.0.2.7", 5, until), away)
	if got := note("key.grant"); got != "it failed: the key may be as it was" {
		t.Errorf("%q", got)
	}
	wantErr(t, "a debit", errOf(w.DebitKey(t.Context(), w.admin, "p", "192.0.2.7", 5)), away)

	w.fleet.op = func(core.Op) (core.Decision, error) { return core.Decision{Taken: 2}, nil }
	charged, err := w.DebitKey(t.Context(), w.admin, "p", "192.0.2.7", 5)
	if got := note("key.debit"); err != nil || charged != 2 || got !=
		"2 of the 5 units were charged: the debt of the key is full" {
		t.Errorf("%d, %v, %q", charged, err, got)
	}
}

// A mistake asks nothing of Redis, and all of them are named.
func TestCreditMistakes(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(sample("p", "a"))
	jobs := sample("jobs", "a")
	jobs.Limit = core.MustParseLimit("2 concurrent ttl=1m")
	w.create(jobs)
	plans := sample("plans", "a")
	plans.Key, plans.PlanBy, plans.Plans = "user", "claim", map[string]core.Limit{"pro": core.MustParseLimit("500/1m")}
	plans.Overrides = map[string]policy.Override{"alice": {Limit: core.MustParseLimit("50/1m debt=7")}}
	w.create(plans)

	now, asked := time.UnixMicro(w.now()), w.asked(nil, nil)
	err := w.GrantKey(t.Context(), w.admin, "jobs", "nowhere", 0, now)
	for _, field := range []string{"policy", "units", "until", "key"} {
		wantFault(t, "a grant", err, field)
	}
	_, err = w.DebitKey(t.Context(), w.admin, "p", "nowhere", 201)
	for _, field := range []string{"units", "key"} {
		wantFault(t, "a debit", err, field)
	}

	// How many units fit under a plan is not known here, but under a limit of the key's own.
	wantFault(t, "a plan", errOf(w.DebitKey(t.Context(), w.admin, "plans", "bob", 1)), "policy")
	wantFault(t, "too many", errOf(w.DebitKey(t.Context(), w.admin, "plans", "alice", 58)), "units")
	equal(t, "times that Redis was asked", len(*asked), 0)
	if _, err = w.DebitKey(t.Context(), w.admin, "plans", "alice", 57); err != nil || len(*asked) != 1 {
		t.Error(err)
	}

	wantErr(t, "no policy", w.GrantKey(t.Context(), w.admin, "none", "k", 1, now), ErrNotFound)
	wantFault(t, "a long key", w.GrantKey(t.Context(), w.admin, "p", strings.Repeat("x", MaxKey+1), 1, now), "key")
}
