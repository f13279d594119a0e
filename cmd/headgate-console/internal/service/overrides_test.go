package service

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/policy"
)

// byUser is a policy of the application a that counts by users.
func byUser(name string) policy.Policy {
	p := sample(name, "a")
	p.Key = "user"
	return p
}

// override changes an override as the administrator: "key=limit", "key=limit until end" or "key=".
func (w *world) override(name, text string) bool {
	w.t.Helper()
	key, limit, _ := strings.Cut(text, "=")
	limit, until, _ := strings.Cut(limit, " until ")
	changed := must(w.SetOverride(w.t.Context(), w.admin, name, OverrideChange{key, limit, until}))
	return changed
}

// overrides returns those of a policy as "key=text".
func (w *world) overrides(name string) (list []string) {
	w.t.Helper()
	page := must(w.Overrides(w.t.Context(), w.admin, name, OverridesQuery{PerPage: MaxPerPage}))
	for _, o := range page.Overrides {
		list = append(list, o.Key+"="+o.String())
	}
	return list
}

// outgoing returns the changes after a revision as "policy key=text", and the last revision.
func (w *world) outgoing(after int64) (list []string, revision int64) {
	w.t.Helper()
	changes, revision, _, err := w.Outbox().ChangedOverrides(w.t.Context(), after, 1000)
	w.must(err)
	for _, c := range changes {
		list = append(list, c.Policy+" "+c.Key+"="+c.Text)
	}
	return list, revision
}

func wantList(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// The clock of a world says 12:00 on this day.
const friday, thatDay = "2026-03-06T17:00:00Z", "2026-03-01T12:00:00Z"

func TestOverridesAreSetAndRemoved(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(byUser("p"))
		w.create(byUser("q"))
		for _, text := range []string{"acme:*=5/1m", "b=7/1m until " + friday, "b =8/1m", "B=9/1m"} {
			if !w.override("p", text) {
				t.Errorf("%s changed nothing", text)
			}
		}
		if w.override("p", "b=7/1m until 2026-03-06T18:00:00+01:00") || w.override("p", "none=") {
			t.Error("what differs in nothing is a change")
		}
		w.override("q", "b=1/1m")
		w.override("p", "b=6/1m")
		w.override("p", "acme:*=")
		wantList(t, "of p", w.overrides("p"), "B=9/1m", "b=6/1m", "b =8/1m")
		wantList(t, "of q", w.overrides("q"), "b=1/1m")

		// Each change has one row, with what was before.
		var rows []string
		for _, e := range w.entries(AuditQuery{Action: "override.", Object: "policy:p"}) {
			rows = append(rows, e.Action+" "+e.Before+" "+e.After)
		}
		wantList(t, "audit", rows,
			`override.remove {"key":"acme:*","limit":"5/1m"} `,
			`override.set {"key":"b","limit":"7/1m until `+friday+`"} {"key":"b","limit":"6/1m"}`,
			`override.set  {"key":"B","limit":"9/1m"}`,
			`override.set  {"key":"b ","limit":"8/1m"}`,
			`override.set  {"key":"b","limit":"7/1m until `+friday+`"}`,
			`override.set  {"key":"acme:*","limit":"5/1m"}`)
	})
}

func TestOverridesAreOnPages(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(byUser("p"))
		for _, text := range []string{"b=6/1m", "b =8/1m", "B=9/1m"} {
			w.override("p", text)
		}
		page := must(w.Overrides(t.Context(), w.admin, "p", OverridesQuery{Prefix: "b", PerPage: 1}))
		if o := page.Overrides; len(o) != 1 || o[0].ChangedBy != FirstUser || !o[0].ChangedAt.Equal(w.clock.now()) ||
			page.Total != 2 || page.All != 3 || !page.More || !page.MayEdit {
			t.Errorf("a page: %+v", page)
		}
		page, err := w.Overrides(t.Context(), w.admin, "p", OverridesQuery{Prefix: "b", After: "b", PerPage: 1})
		if w.must(err); len(page.Overrides) != 1 || page.Overrides[0].Key != "b " || page.More {
			t.Errorf("the next page: %+v", page)
		}
	})
}

// A key that may be a secret is a digest in the policy, and another one in the audit log.
func TestOverrideOfASecretIsInTheAuditLogAsADigest(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		p := byUser("p")
		p.Key = "api-key"
		w.create(p)
		key := keyfuncs.Digest("k")
		w.override("p", key+"=5/1m")
		e := w.entries(AuditQuery{Action: "override.set"})[0]
		if want := `{"key_sha256":"` + auth.Digest(key) + `","limit":"5/1m"}`; e.After != want {
			t.Errorf("the entry is %s, want %s", e.After, want)
		}
	})
}

func TestWrongOverridesAreRefused(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		p := byUser("p")
		p.Cost = policy.Cost{Units: 3}
		w.create(p)
		ip := byUser("ip")
		ip.Key = "ip"
		w.create(ip)

		for _, row := range []struct {
			name   string
			change OverrideChange
			want   string
		}{
			{"p", OverrideChange{"", "5/1m", ""}, "key: the key is empty"},
			{"p", OverrideChange{"", "", ""}, "key: the key is empty"},
			{"p", OverrideChange{"k", "5", ""}, `limit: limit "5"`},
			{"p", OverrideChange{"k", "", friday}, `limit: limit ""`},
			{"p", OverrideChange{"k", "5/1m until " + friday, ""}, "limit: the end has a field of its own"},
			{"p", OverrideChange{"k", "2/1m", ""}, "limit: the cost 3 is more than the limit 2/1m ever has"},
			{"p", OverrideChange{"k", "5/1m fixed-window", ""}, "limit: its algorithm is fixed-window"},
			{"p", OverrideChange{"k", "5/1m", "2026-03-06"}, `until: "2026-03-06" has no time and no zone`},
			{"p", OverrideChange{"k", "5/1m", thatDay}, "until: it has passed already"},
			{"ip", OverrideChange{"2001:db8::7", "5/1m", ""}, "key: "},
			{"ip", OverrideChange{"192.0.2.*", "5/1m", ""}, "key: "},
			{"p", OverrideChange{strings.Repeat("k", 513), "5/1m", ""}, "key: the key has 513 bytes, more than 512"},
		} {
			_, err := w.SetOverride(t.Context(), w.admin, row.name, row.change)
			var bad *InvalidError
			if !errors.As(err, &bad) || len(bad.Faults) != 1 || !strings.HasPrefix(err.Error(), row.want) {
				t.Errorf("%+v: %v, want %s", row.change, err, row.want)
			}
		}

		// Of several, none is changed, and every mistake is named.
		_, err := w.ChangeOverrides(t.Context(), w.admin, "p", []OverrideChange{
			{"a", "5/1m", ""}, {"b", "x", "y"}, {"a", "", ""}})
		var bad *InvalidError
		if !errors.As(err, &bad) || len(bad.Faults) != 3 || bad.Faults[0].Field != "changes[1].limit" ||
			bad.Faults[1].Field != "changes[1].until" || bad.Faults[2].Field != "changes[2].key" {
			t.Errorf("several: %v", err)
		}
		_, err = w.ChangeOverrides(t.Context(), w.admin, "p", make([]OverrideChange, MaxOverrideChanges+1))
		if !errors.As(err, &bad) || bad.Faults[0].Field != "changes" {
			t.Errorf("too many at once: %v", err)
		}
		wantList(t, "of p", w.overrides("p"))
		if list, revision := w.outgoing(0); len(list) > 0 || revision != 0 {
			t.Errorf("%q at %d", list, revision)
		}
	})
}

// The instances leave out what does not fit the policy any more, and the page says why.
func TestOverrideThatDoesNotFitAnyMoreHasAReason(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		p := w.create(byUser("p"))
		w.override("p", "k=5/1m")
		p.Cost = policy.Cost{Units: 6}
		must(w.UpdatePolicy(t.Context(), w.admin, p))
		page := must(w.Overrides(t.Context(), w.admin, "p", OverridesQuery{}))
		equal(t, "the reason is", page.Overrides[0].Reason, "the cost 6 is more than the limit 5/1m ever has")
	})
}

// What is removed is in the outbox until it was published, and each change has a revision.
func TestOutboxOfOverrides(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx, out := t.Context(), w.Outbox()
		w.create(byUser("p"))
		w.override("p", "a=1/1m")
		w.override("p", "b=2/1m")
		list, second := w.outgoing(0)
		wantList(t, "two", list, "p a=1/1m", "p b=2/1m")

		w.override("p", "a=")
		list, third := w.outgoing(second)
		wantList(t, "a removal", list, "p a=")

		// More than the limit end with the revision of the last one.
		changes, revision, more, err := out.ChangedOverrides(ctx, 0, 1)
		if err != nil || len(changes) != 1 || changes[0].Key != "b" || revision != second || !more {
			t.Errorf("one of two: %v at %d, %v %v", changes, revision, more, err)
		}
		texts, err := out.OverrideTexts(ctx, "p", []string{"a", "b", "c"})
		if err != nil || !maps.Equal(texts, map[string]string{"b": "2/1m"}) {
			t.Errorf("the texts are %v, %v", texts, err)
		}

		pending := func(want bool) {
			t.Helper()
			if p, err := w.Publishing(ctx, w.admin); err != nil || p.Overrides != want {
				t.Errorf("overrides are pending: %v, %v, want %v", p.Overrides, err, want)
			}
		}
		pending(true)
		w.must(out.OverridesPublished(ctx, third))
		pending(false)
		w.must(out.OverridesPublished(ctx, second)) // by a console that is late
		equal(t, "published is", w.owner().Overrides, third)
		list, revision = w.outgoing(0)
		wantList(t, "all that are left", list, "p b=2/1m")
		equal(t, "the revision is", revision, third)

		// A revision is not below the time, so a backup gives none twice.
		w.clock.pass(time.Hour)
		w.override("p", "c=3/1m")
		if _, revision = w.outgoing(0); revision != w.clock.now().UnixMilli() {
			t.Errorf("the revision is %d, want %d", revision, w.clock.now().UnixMilli())
		}
	})
}

// A deleted policy takes its overrides along, and one that is restored has them again. A new one of
// its name has none.
func TestOverridesOfDeletedPolicies(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(byUser("other"))
		w.create(byUser("p"))
		w.override("other", "k=1/1m")
		w.override("p", "a=1/1m")
		w.override("p", "b=2/1m")
		w.override("p", "b=")
		_, before := w.outgoing(0)
		w.must(w.DeletePolicy(ctx, w.admin, "p", 1))
		list, gone := w.outgoing(before)
		wantList(t, "the deletion", list, "p =")
		list, _ = w.outgoing(0)
		wantList(t, "all", list, "other k=1/1m", "p =")
		wantErr(t, "of a deleted policy", errOf(w.Overrides(ctx, w.admin, "p", OverridesQuery{})), ErrNotFound)

		must(w.Rollback(ctx, w.admin, "p", 1, 2))
		wantList(t, "restored", w.overrides("p"), "a=1/1m")
		list, _ = w.outgoing(gone)
		wantList(t, "the restoration", list, "p a=1/1m")

		// Redis may have what was removed shortly before the deletion.
		w.override("p", "a=")
		w.must(w.DeletePolicy(ctx, w.admin, "p", 3))
		list, _ = w.outgoing(gone)
		wantList(t, "the second deletion", list, "p =")

		w.create(byUser("q"))
		w.override("q", "a=1/1m")
		w.must(w.DeletePolicy(ctx, w.admin, "q", 1))
		w.create(byUser("q"))
		wantList(t, "a new policy", w.overrides("q"))
		w.must(w.DeletePolicy(ctx, w.admin, "q", 3))
		must(w.Rollback(ctx, w.admin, "q", 3, 4))
		wantList(t, "the new policy, restored", w.overrides("q"))
	})
}

// The hundred thousandth override fits, and the next one is an error that changes nothing.
func TestOverridesOfAPolicyAreBounded(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(byUser("p"))
		w.must(w.db.Update(t.Context(), func(tx *store.Tx) error {
			list := make([]store.Override, policy.MaxOverridesBeside-1)
			for i := range list {
				list[i] = store.Override{Policy: "p", Key: fmt.Sprint(i), Text: "1/1m", Revision: int64(i + 1)}
			}
			return tx.InsertOverrides(list)
		}))
		w.override("p", "last=1/1m")
		_, err := w.SetOverride(t.Context(), w.admin, "p", OverrideChange{"more", "1/1m", ""})
		want := "key: the policy p would have 100001 overrides, more than 100000"
		if err == nil || err.Error() != want {
			t.Errorf("one more: %v, want %s", err, want)
		}

		// Another one may go with it.
		must(w.ChangeOverrides(t.Context(), w.admin, "p", []OverrideChange{{"more", "1/1m", ""}, {"0", "", ""}}))
		page, err := w.Overrides(t.Context(), w.admin, "p", OverridesQuery{Prefix: "m"})
		if w.must(err); page.All != policy.MaxOverridesBeside || page.Total != 1 {
			t.Errorf("%+v", page)
		}

		// All of them go with the policy, and come back.
		w.must(w.DeletePolicy(t.Context(), w.admin, "p", 1))
		must(w.Rollback(t.Context(), w.admin, "p", 1, 2))
		page, err = w.Overrides(t.Context(), w.admin, "p", OverridesQuery{})
		if w.must(err); page.All != policy.MaxOverridesBeside {
			t.Errorf("%d after a restoration", page.All)
		}
	})
}

// Two consoles give no revision twice, and lose no change.
func TestOverridesOfTwoConsoles(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(byUser("p"))

		var both sync.WaitGroup
		for c, s := range []*Service{w.Service, w.another()} {
			both.Go(func() {
				for i := range 20 {
					change := OverrideChange{fmt.Sprintf("%d-%02d", c, i), "1/1m", ""}
					if _, err := s.SetOverride(t.Context(), w.admin, "p", change); err != nil {
						t.Error(err)
					}
				}
			})
		}
		both.Wait()

		if list, _ := w.outgoing(0); len(list) != 40 {
			t.Errorf("%d changes, want 40", len(list))
		}

		seen := map[int64]bool{}
		w.must(w.db.View(t.Context(), func(tx *store.Tx) error {
			rows, err := tx.ChangedOverrides(0, 100)
			for _, row := range rows {
				seen[row.Revision] = true
			}
			return err
		}))
		equal(t, "revisions", len(seen), 40)
	})
}

// An override that ended a day ago is removed as any other is, and what a policy had that was
// deleted a month ago. Everything else stays.
func TestOverridesAreSwept(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx, out := t.Context(), w.Outbox()
		for _, name := range []string{"early", "late", "p", "q"} {
			w.create(byUser(name))
			w.override(name, "a=1/1m")
			w.override(name, "b=2/1m until 2026-03-01T13:00:00Z")
			w.override(name, "c=3/1m until "+friday)
		}
		w.must(w.DeletePolicy(ctx, w.admin, "early", 1))
		w.clock.pass(time.Hour + keepEnded - time.Second)
		_, before := w.outgoing(0)
		w.must(out.SweepOverrides(ctx))
		wantList(t, "a second before", w.overrides("p"), "a=1/1m", "b=2/1m until 2026-03-01T13:00:00Z",
			"c=3/1m until "+friday)
		if _, revision := w.outgoing(0); revision != before {
			t.Error("the sweep of nothing has a revision")
		}

		w.clock.pass(time.Second)
		w.must(out.SweepOverrides(ctx))
		for _, name := range []string{"late", "p", "q"} {
			wantList(t, name, w.overrides(name), "a=1/1m", "c=3/1m until "+friday)
		}
		list, _ := w.outgoing(before)
		wantList(t, "to publish", list, "late b=", "p b=", "q b=")
		rows := w.entries(AuditQuery{Action: "overrides.sweep"})
		if len(rows) != 3 || rows[1].Object != "policy:p" || rows[1].Before != `{"ended":1}` || rows[1].Actor != "" {
			t.Errorf("the audit log has %+v", rows)
		}

		// A month after the deletion of one, and a day before that of the other.
		w.clock.pass(24*time.Hour - time.Hour)
		w.must(w.DeletePolicy(ctx, w.admin, "late", 1))
		w.clock.pass(keepDeleted - 2*24*time.Hour)
		w.must(out.SweepOverrides(ctx))
		kept := func(name string) (n int) {
			w.must(w.db.View(ctx, func(t *store.Tx) error {
				list, err := t.DeletedOverrides(name)
				n = len(list)
				return err
			}))
			return n
		}
		if kept("early") != 3 || kept("late") != 2 {
			t.Errorf("%d and %d are kept, want 3 and 2", kept("early"), kept("late"))
		}
		w.clock.pass(time.Microsecond)
		w.must(out.SweepOverrides(ctx))
		if kept("early") != 0 || kept("late") != 2 {
			t.Errorf("%d and %d are kept, want 0 and 2", kept("early"), kept("late"))
		}
		if _, err := w.Rollback(ctx, w.admin, "late", 1, 2); err != nil {
			t.Fatal(err)
		}
		wantList(t, "restored", w.overrides("late"), "a=1/1m", "c=3/1m until "+friday)
	})
}

// Overrides that have ended are in nothing's way: they make room for others at once.
func TestEndedOverridesMakeRoom(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(byUser("p"))
		w.must(w.db.Update(t.Context(), func(tx *store.Tx) error {
			list := make([]store.Override, policy.MaxOverridesBeside)
			text := "1/1m until " + thatDay
			for i := range list {
				list[i] = store.Override{Policy: "p", Key: fmt.Sprint(i), Text: text, Revision: int64(i + 1)}
			}
			list[7].Text = "1/1m until " + friday
			return tx.InsertOverrides(list)
		}))
		w.override("p", "one=1/1m")
		wantList(t, "left", w.overrides("p"), "7=1/1m until "+friday, "one=1/1m")
		rows := w.entries(AuditQuery{Action: "overrides.sweep"})
		if len(rows) != 1 || rows[0].Before != `{"ended":99999}` {
			t.Errorf("the audit log has %+v", rows)
		}

		// Those that are removed are published before those that they make room for.
		var changes []policy.OverrideChange
		after := int64(0)
		for more := true; more; {
			var part []policy.OverrideChange
			var err error
			part, after, more, err = w.Outbox().ChangedOverrides(t.Context(), after, 1000)
			w.must(err)
			changes = append(changes, part...)
		}
		if last := changes[len(changes)-1]; len(changes) != policy.MaxOverridesBeside+1 || last.Key != "one" {
			t.Errorf("%d changes, the last one %+v", len(changes), last)
		}
	})
}

// A removal is published before what takes its place, in whatever order both were asked for.
func TestOverridesAreRemovedFirst(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(byUser("p"))
	w.override("p", "old=1/1m")
	_, err := w.ChangeOverrides(t.Context(), w.admin, "p",
		[]OverrideChange{{"b", "1/1m", ""}, {"old", "", ""}, {"a", "1/1m", ""}})
	w.must(err)
	list, _ := w.outgoing(0)
	wantList(t, "to publish", list, "p old=", "p b=1/1m", "p a=1/1m")
}
