package service

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

func banning(name, app string) policy.Policy {
	p := sample(name, app)
	p.Key, p.Ban = "user", core.MustParseBan("20/1m for 10m max 24h")
	return p
}

func TestTopIsOfOneApplication(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.Service.fleet = nil
	wantErr(t, "without Redis", errOf(w.Top(t.Context(), w.admin, "a")), ErrNoFleet)
	w.Service.fleet = w.fleet

	want := stats.Top{Instances: 1, Rules: []topkeys.Rule{{Rule: "p", Refused: topkeys.Summary{Total: 3}}}}
	w.fleet.top = func(app string) (stats.Top, error) {
		equal(t, "the application", app, "a")
		return want, nil
	}

	if got, err := w.Top(t.Context(), w.admin, "a"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}

	// An application that does not exist and one that the actor does not see are answered alike.
	wantErr(t, "no application", errOf(w.Top(t.Context(), w.admin, "none")), ErrNotFound)
	_, err := w.Top(t.Context(), w.person("x", map[string]Role{"b": Owner}), "a")
	wantErr(t, "another's application", err, ErrNotFound)

	away := errors.New("away")
	w.fleet.top = func(string) (stats.Top, error) { return stats.Top{}, away }
	_, err = w.Top(t.Context(), w.admin, "a")
	wantErr(t, "an outage", err, away)
	wantErr(t, "an outage", err, ErrNoFleet)
}

func TestImposeBanWritesTheAuditLogFirst(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(banning("p", "a"))

		// A ban that is imposed is in the audit log whatever happens: the row is there before
		// Redis is asked.
		asked := w.asked(nil, func(op core.Op) {
			rows := w.entries(AuditQuery{Action: "ban.impose"})
			if len(rows) != 1 || rows[0].Actor != "x" || rows[0].Object != "policy:p" || rows[0].Outcome != Done ||
				rows[0].After != `{"key":"a\"\n\u003cb\u003e","for":"1h0m0s"}` {
				t.Errorf("at the ban the audit log has %+v", rows)
			}
			equal(t, "the ban", *op.Ban, core.Ban{Strikes: 20, Within: time.Minute, For: time.Hour, Max: time.Hour})
		})
		x := w.person("x", map[string]Role{"a": Owner})
		w.must(w.ImposeBan(t.Context(), x, "p", "a\"\n<b>", time.Hour))
		equal(t, "what Redis is asked", *asked, []string{"impose p a\"\n<b>"})

		// A ban that failed has two rows: the intention and the failure.
		away := errors.New("away")
		w.asked(away, nil)
		wantErr(t, "an outage", w.ImposeBan(t.Context(), w.admin, "p", "k", time.Hour), away)

		rows := w.entries(AuditQuery{Action: "ban.impose"})
		if len(rows) != 3 || rows[0].Outcome != Refused || !strings.Contains(rows[0].Note, "failed") ||
			rows[1].Outcome != Done {
			t.Errorf("%+v", rows)
		}
	})
}

func TestImposeBanNeedsAKeyAndATime(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	asked := w.asked(nil, nil)

	// One policy counts addresses, one is not in force, and the third bans for 24 hours at most.
	w.create(sample("plain", "a"))
	w.create(banning("p", "a"))
	shadow := banning("shadow", "a")
	shadow.Mode = policy.Shadow
	w.create(shadow)

	for _, row := range []struct {
		name, key string
		span      time.Duration
		field     string
	}{
		{"plain", "k", time.Hour, "key"}, {"plain", "192.0.2.1", longestBan + time.Second, "for"},
		{"shadow", "k", time.Hour, "ban"}, {"p", "k", 0, "for"},
		{"p", "k", -time.Hour, "for"},
		{"p", "k", 24*time.Hour + time.Millisecond, "for"}, {"p", "k", time.Second + 1, "for"},
		{"p", strings.Repeat("x", MaxKey+1), time.Hour, "key"},
		{"p", topkeys.Shorten(strings.Repeat("x", 100)), time.Hour, "key"},
	} {
		wantFault(t, row.name, w.ImposeBan(t.Context(), w.admin, row.name, row.key, row.span), row.field)
	}

	// Both bounds are possible.
	w.must(w.ImposeBan(t.Context(), w.admin, "p", strings.Repeat("x", MaxKey), 24*time.Hour))
	if len(*asked) != 1 || len(w.entries(AuditQuery{Action: "ban.impose"})) != 1 {
		t.Errorf("%q", *asked)
	}
}

func TestAllowKeyIsAChangeOfThePolicy(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		p := sample("p", "a")
		p.Key, p.Access = "user", policy.Access{Deny: policy.Callers{Keys: []string{"eve"}}, DenyStatus: 429}
		w.create(p)

		// A key that was denied is allowed, and not denied any more.
		x := w.person("x", map[string]Role{"a": Owner})
		saved := must(w.AllowKey(t.Context(), x, "p", "eve", 1))
		if saved.Version != 2 || !reflect.DeepEqual(saved.Access,
			policy.Access{Allow: policy.Callers{Keys: []string{"eve"}}}) {
			t.Errorf("%+v", saved)
		}

		history := must(w.History(t.Context(), x, "p", 0, 0))
		if len(history) != 2 || history[0].Actor != "x" || history[0].Note != "a key is allowed" ||
			history[0].Action != "update" {
			t.Errorf("%+v", history)
		}

		if rows := w.entries(AuditQuery{Action: "policy.update"}); len(rows) != 1 || rows[0].Actor != "x" ||
			rows[0].Outcome != Done {
			t.Errorf("%+v", rows)
		}

		// It has the conflicts of an edit.
		_, err := w.AllowKey(t.Context(), x, "p", "bob", 1)
		wantConflict(t, "an old version", err, 1, 2)

		must(w.AllowKey(t.Context(), x, "p", "a\x00\n<b>", 2))

		// A key that is listed already changes nothing, and makes no version.
		again, err := w.AllowKey(t.Context(), x, "p", "eve", 3)
		if w.must(err); again.Version != 3 {
			t.Errorf("a key that is listed: %+v", again)
		}

		got, err := w.Policy(t.Context(), x, "p")
		if w.must(err); got.Version != 3 || !reflect.DeepEqual(got.Access.Allow.Keys, []string{"eve", "a\x00\n<b>"}) {
			t.Errorf("%+v", got)
		}

		// A key that was cut for a table is not the key of a caller.
		_, err = w.AllowKey(t.Context(), x, "p", topkeys.Shorten(strings.Repeat("x", 100)), 3)
		wantFault(t, "a key that was cut", err, "key")
	})
}

// A list of digests takes no key that no caller can have.
func TestAllowKeyRefusesASecret(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	p := sample("p", "a")
	p.Key = "api-key"
	w.create(p)
	_, err := w.AllowKey(t.Context(), w.admin, "p", "s3cret", 1)
	wantFault(t, "a key that is no digest", err, "access")
	if strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
}

func TestLimitKeyIsAChangeOfThePolicy(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		p := sample("p", "a")
		p.Key = "user"
		w.create(p)

		x := w.person("x", map[string]Role{"a": Owner})
		ten, twenty := core.Limit{Quota: 10, Period: time.Minute}, core.Limit{Quota: 20, Period: time.Minute}

		hostile := "a\x00\n<b>: \u202e"
		saved := must(w.LimitKey(t.Context(), x.Saying("a partner"), "p", hostile, &policy.Override{Limit: ten}, 1))
		now := time.Now()
		if saved.Version != 2 || saved.LimitOf(hostile, now) != ten || saved.LimitOf("another", now) != p.Limit {
			t.Errorf("%+v", saved)
		}

		// It has the conflicts of an edit.
		_, err := w.LimitKey(t.Context(), x, "p", "bob", &policy.Override{Limit: ten}, 1)
		wantConflict(t, "an old version", err, 1, 2)

		// What is so already makes no version: neither the limit that the key has, nor none for a
		// key without one.
		must(w.LimitKey(t.Context(), x, "p", hostile, &policy.Override{Limit: twenty}, 2))
		again, err := w.LimitKey(t.Context(), x, "p", hostile, &policy.Override{Limit: twenty}, 3)
		if w.must(err); again.Version != 3 {
			t.Errorf("the limit that it has: %+v", again)
		}

		saved, err = w.LimitKey(t.Context(), x, "p", hostile, nil, 3)
		if w.must(err); saved.Version != 4 || saved.Overrides != nil {
			t.Errorf("without its limit: %+v", saved)
		}

		again, err = w.LimitKey(t.Context(), x, "p", hostile, nil, 4)
		if w.must(err); again.Version != 4 {
			t.Errorf("a key without a limit of its own: %+v", again)
		}

		w.wantKeyChanges(x)
		saved, err = w.Rollback(t.Context(), x, "p", 2, 4)
		if w.must(err); saved.LimitOf(hostile, time.Now()) != ten {
			t.Errorf("after the roll-back: %+v", saved)
		}

		viewer := w.person("v", map[string]Role{"a": Viewer})
		_, err = w.LimitKey(t.Context(), viewer, "p", "k", &policy.Override{Limit: ten}, 5)
		wantErr(t, "a viewer", err, ErrDenied)
		_, err = w.LimitKey(t.Context(), w.person("s", nil), "p", "k", &policy.Override{Limit: ten}, 5)
		wantErr(t, "a stranger", err, ErrNotFound)
	})
}

// wantKeyChanges checks what the history and the audit log have of a key that x gave a limit of
// its own, changed and took away.
func (w *world) wantKeyChanges(x Actor) {
	w.t.Helper()
	history := must(w.History(w.t.Context(), x, "p", 0, 0))
	if len(history) != 4 || history[0].Note != "a key has no limit of its own any longer" ||
		history[2].Note != "a key has a limit of its own" ||
		history[2].Comment != "a partner" || history[2].Actor != "x" || history[2].Action != "update" {
		w.t.Errorf("%+v", history)
	}

	if rows := w.entries(AuditQuery{Action: "policy.update"}); len(rows) != 3 || rows[0].Actor != "x" ||
		rows[0].Outcome != Done {
		w.t.Errorf("%+v", rows)
	}
}

func TestLimitKeyNamesTheMistake(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	p := sample("p", "a")
	p.Key, p.Overrides = "user", map[string]policy.Override{}

	// As many limits of keys as a policy may have.
	for i := range policy.MaxOverrides {
		p.Overrides[fmt.Sprint("k", i)] = policy.Override{Limit: p.Limit}
	}
	w.create(p)

	// The keys of one policy are digests of secrets, and another counts all callers as one.
	secret, all := sample("secret", "a"), sample("all", "a")
	secret.Key, all.Key = "api-key", "global"
	w.create(secret)
	w.create(all)

	ten := core.Limit{Quota: 10, Period: time.Minute}
	wrong := ten
	wrong.Algorithm = core.SlidingLog

	for _, row := range []struct {
		what, name, key string
		limit           core.Limit
		field           string
	}{
		{"a key too many", "p", "another", ten, "limit"},
		{"another algorithm", "p", "k1", wrong, "limit"},
		{"no limit", "p", "k1", core.Limit{}, "limit"},
		{"no key", "p", "", ten, "key"},
		{"a long key", "p", strings.Repeat("x", 513), ten, "key"},
		{"a key that is not UTF-8", "p", "\xff", ten, "key"},
		{"a key that was cut", "p", topkeys.Shorten(strings.Repeat("x", 100)), ten, "key"},
		{"a secret", "secret", "s3cret", ten, "key"},
		{"all callers", "all", "k", ten, "key"},
	} {
		_, err := w.LimitKey(t.Context(), w.admin, row.name, row.key, &policy.Override{Limit: row.limit}, 1)
		wantFault(t, row.what, err, row.field)

		// The mistake does not repeat a secret that was typed.
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Error(err)
		}
	}

	_, err := w.AllowKey(t.Context(), w.admin, "p", "\xff", 1)
	wantFault(t, "a key to allow that is not UTF-8", err, "access")

	if v, err := w.Policy(t.Context(), w.admin, "p"); err != nil || v.Version != 1 {
		t.Errorf("%+v, %v", v, err)
	}
}
