package service

import (
	"context"
	"testing"
	"time"

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
		never := func(context.Context, policy.Policy, string, time.Duration) error {
			t.Error("the store was asked")
			return nil
		}
		ban := func(key string, span time.Duration) {
			t.Helper()
			w.must(w.ImposeBan(t.Context(), w.admin.Saying("why"), "p", key, span, never))
		}
		lifted := func(context.Context, policy.Policy, string) error {
			t.Error("the store was asked")
			return nil
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
		if len(list) != 2 || list[0].Key != "own" || list[1].Key != "eve" || list[1].By != FirstUser ||
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

		w.must(w.LiftBan(t.Context(), w.admin, "p", "own", lifted))
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
