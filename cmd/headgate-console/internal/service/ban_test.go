package service

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/policy"
)

// texts returns the overrides of p as they are published.
func (w *world) texts() (list []string) {
	w.t.Helper()
	changes, _, _, err := w.Outbox().ChangedOverrides(w.t.Context(), 0, 100)
	w.must(err)
	for _, c := range changes {
		list = append(list, c.Key+"="+c.Text)
	}
	return list
}

// A ban beside a policy and the limit of a key leave each other as they are, and each has its own
// end.
func TestBanBesideAPolicy(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(byUser("p"))
		w.asked(nil, func(op core.Op) { t.Errorf("Redis was asked to %s %s", op.Verb, op.Key) })
		ban := func(key string, span time.Duration) {
			t.Helper()
			w.must(w.ImposeBan(t.Context(), w.admin.Saying("why"), "p", key, span))
		}
		// A ban ends with a whole second.
		end := func(d time.Duration) time.Time {
			return w.clock.now().Add(d + time.Second - time.Microsecond).UTC().Truncate(time.Second)
		}
		at := func(d time.Duration) string { return end(d).Format(time.RFC3339) }

		w.override("p", "own=6/1m")
		ban("own", time.Hour)
		ban("eve", time.Minute)
		equal(t, "the texts", w.texts(), []string{"own=banned until " + at(time.Hour) + ", then 6/1m",
			"eve=banned until " + at(time.Minute)})

		// A change of the limit, its removal and an import lift no ban.
		w.override("p", "own=7/1m")
		w.override("p", "eve=")
		must(w.ImportOverrides(t.Context(), w.admin,
			OverridesImport{Set: OverrideSet{"p": {}}, Missing: RemoveMissing}))
		equal(t, "the texts", w.texts(), []string{"eve=banned until " + at(time.Minute),
			"own=banned until " + at(time.Hour)})

		list := must(w.BansBeside(t.Context(), w.admin, []string{"p", "other"}))
		if len(list) != 2 || list[0].Key != "own" || list[1].Key != "eve" ||
			!list[1].Until.Equal(end(time.Minute)) {
			t.Errorf("%+v", list)
		}
		if list := must(w.BansBeside(t.Context(), w.admin, nil)); len(list) != 0 {
			t.Errorf("of no policy: %+v", list)
		}
		stranger := w.person("x", map[string]Role{"b": Owner})
		if list := must(w.BansBeside(t.Context(), stranger, []string{"p"})); len(list) != 0 {
			t.Errorf("of a policy that is not seen: %+v", list)
		}

		w.must(w.LiftBan(t.Context(), w.admin, "p", "own"))
		w.clock.pass(time.Minute + time.Second)
		if list := must(w.BansBeside(t.Context(), w.admin, []string{"p"})); len(list) != 0 {
			t.Errorf("after the lift and the end: %+v", list)
		}

		// What has ended is swept like every override.
		w.clock.pass(keepEnded)
		w.must(w.Outbox().SweepOverrides(t.Context()))
		if page := must(w.Overrides(t.Context(), w.admin, "p", OverridesQuery{})); page.All != 0 {
			t.Errorf("after the sweep: %+v", page)
		}

		rows := w.entries(AuditQuery{Action: "ban.impose"})
		if len(rows) != 2 || rows[0].Note != "why" || rows[0].After != `{"key":"eve","for":"1m0s"}` {
			t.Errorf("the audit log has %+v", rows)
		}
	})
}

// However many bans others have, and however long those last, a policy has its own.
func TestBansOfOthersLeaveRoom(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		for _, name := range []string{"p", "other"} {
			w.create(byUser(name))
		}
		w.asked(nil, nil)
		for _, key := range []string{"eve", "bob"} {
			w.must(w.ImposeBan(t.Context(), w.admin, "p", key, time.Minute))
		}

		late := policy.Override{BannedUntil: w.clock.now().Add(time.Hour).UTC().Truncate(time.Second)}
		others := make([]store.Override, maxBans)
		for i := range others {
			others[i] = store.Override{Policy: "other", Key: fmt.Sprint("k", i), Text: late.String(),
				Revision: int64(i)}
		}
		w.must(w.db.Update(t.Context(), func(t *store.Tx) error { return t.InsertOverrides(others) }))

		if list := must(w.BansBeside(t.Context(), w.admin, []string{"p"})); len(list) != 2 {
			t.Errorf("the policy has %+v", list)
		}
		for _, row := range []struct {
			a    Actor
			name string
			want int
		}{{w.admin, "p", 1}, {w.admin, "other", 0}, {w.person("x", map[string]Role{"b": Owner}), "p", 0}} {
			list := must(w.BansOfKeys(t.Context(), row.a, row.name, []string{"eve", "another"}))
			if len(list) != row.want || len(list) == 1 && list[0].Key != "eve" {
				t.Errorf("%s to %s: %+v, want %d", row.name, row.a.user, list, row.want)
			}
		}
	})
}

// A ban is refused where no request would meet it.
func TestCheckBanRefusesWhatBansNothing(t *testing.T) {
	itself, part, shadow := sample("p", "a"), sample("p", "a"), sample("p", "a")
	itself.Ban = core.MustParseBan("5/1m for 10m max 1h")
	shadow.Mode = policy.Shadow

	// Half of the addresses are counted without being refused.
	part.Enforce = core.Whole / 2
	shared, alone := "", ""
	for i := 0; shared == "" || alone == ""; i++ {
		if key := fmt.Sprint("192.0.2.", i); part.Enforce.Has("p", key) {
			shared = key
		} else {
			alone = key
		}
	}

	for _, c := range []struct {
		p     policy.Policy
		key   string
		span  time.Duration
		fault string // the field, or ""
	}{
		{sample("p", "a"), "192.0.2.1", longestBan, ""},
		{sample("p", "a"), "192.0.2.1", longestBan + time.Second, "for"},
		{sample("p", "a"), "192.0.2.*", time.Hour, "key"}, {sample("p", "a"), "2001:db8::1", time.Hour, "key"},
		{itself, "192.0.2.1", time.Hour, ""}, {itself, "192.0.2.1", time.Hour + time.Second, "for"},
		{itself, "2001:db8::/64", time.Hour, ""}, {itself, "2001:db8::1", time.Hour, "key"},
		{itself, "192.0.2.*", time.Hour, "key"}, {itself, "*", time.Hour, "key"}, {itself, "", time.Hour, "key"},
		{part, shared, time.Hour, ""}, {part, alone, time.Hour, "ban"}, {shadow, "192.0.2.1", time.Hour, "ban"},
	} {
		err := CheckBan(c.p, c.key, c.span)
		what := fmt.Sprintf("%q for %s, mode %s, enforce %s", c.key, c.span, c.p.Mode, c.p.Enforce)
		if c.fault != "" {
			wantFault(t, what, err, c.fault)
		} else if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Bans are explained as the audit log has them, and only to those who see their policy.
func TestExplainBans(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		for _, name := range []string{"p", "quiet"} {
			w.create(byUser(name))
		}
		w.create(banning("own", "a"))
		secret := byUser("secret")
		secret.Key = "api-key"
		token := keyfuncs.Digest("token")
		w.create(secret)

		anna := w.person("anna", map[string]Role{"a": Owner})
		w.asked(nil, nil)
		impose := func(a Actor, name, key string, span time.Duration) {
			t.Helper()
			w.must(w.ImposeBan(t.Context(), a, name, key, span))
			w.clock.pass(time.Minute)
		}
		began := w.clock.now()
		impose(w.admin.Saying("at first"), "p", `a","for":"1h"`, time.Minute)
		impose(anna.Saying("a scraper"), "p", `a","for":"1h"`, time.Hour)
		impose(anna.Saying("leaked"), "secret", token, time.Hour)
		impose(anna.Saying("too many"), "own", "eve", time.Hour)

		// A change of the key's limit leaves the ban that of who imposed it.
		at := func(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }
		w.override("p", `a","for":"1h"=6/1m`)
		bans := []*KeyBan{
			{Policy: "p", Key: `a","for":"1h"`, Until: at(61), By: FirstUser},
			{Policy: "secret", Key: token, Until: at(62)},
			{Policy: "own", Key: "eve", Until: at(63).Add(9 * time.Second)}, // by the clock of Redis
			{Policy: "own", Key: "eve", Until: at(64)},                      // the policy itself began it
			{Policy: "quiet", Key: "eve", Until: at(61)},
			{Policy: "gone", Key: "eve", Until: at(61)},
		}
		explained := func(a Actor) (list []string) {
			w.must(w.ExplainBans(t.Context(), a, bans))
			for _, b := range bans {
				minutes := -1
				if !b.At.IsZero() {
					minutes = int(b.At.Sub(began) / time.Minute)
				}
				list = append(list, fmt.Sprintf("%s %s %d %s", b.Policy, b.By, minutes, b.Comment))
			}
			return list
		}

		// The list beside the policy says so too.
		page := must(w.Overrides(t.Context(), w.admin, "p", OverridesQuery{}))
		if len(page.Overrides) != 1 || page.Overrides[0].Ban.Comment != "a scraper" ||
			page.Overrides[0].Ban.By != "anna" || !page.Overrides[0].Ban.At.Equal(at(1)) {
			t.Errorf("%+v", page)
		}

		stranger := w.person("x", map[string]Role{"b": Owner})
		equal(t, "to a stranger", explained(stranger), []string{"p  -1 ", "secret  -1 ", "own  -1 ", "own  -1 ",
			"quiet  -1 ", "gone  -1 "})
		equal(t, "to an administrator", explained(w.admin), []string{"p anna 1 a scraper", "secret anna 2 leaked",
			"own anna 3 too many", "own  -1 ", "quiet  -1 ", "gone  -1 "})

		// Who sees the policy since it was moved does not learn what was said before.
		moved := must(w.Policy(t.Context(), w.admin, "p"))
		moved.Apps = []string{"b"}
		must(w.UpdatePolicy(t.Context(), w.admin, moved))
		banner := func(a Actor) string {
			b := KeyBan{Policy: "p", Key: `a","for":"1h"`, Until: at(61)}
			w.must(w.ExplainBans(t.Context(), a, []*KeyBan{&b}))
			return b.By
		}
		for by, actor := range map[string]Actor{"": stranger, "anna": w.admin} {
			equal(t, "who banned the key of a policy that was moved", banner(actor), by)
		}

		// A deletion that is undone leaves the ban and what is said of it.
		version := must(w.Policy(t.Context(), w.admin, "p")).Version
		w.must(w.DeletePolicy(t.Context(), w.admin, "p", version))
		must(w.Undo(t.Context(), w.admin, "p", version+1))
		equal(t, "who banned the key of a policy that was deleted", banner(w.admin)+"/"+banner(stranger), "anna/")
	})
}
