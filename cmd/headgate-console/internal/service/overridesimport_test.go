package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

// setOf reads overrides such as "p a=1/1m", and "p" for a policy that has none.
func setOf(texts ...string) OverrideSet {
	set := OverrideSet{}
	for _, text := range texts {
		name, rest, has := strings.Cut(text, " ")
		if set[name] == nil {
			set[name] = map[string]policy.OverrideText{}
		}
		if key, limit, _ := strings.Cut(rest, "="); has {
			set[name][key] = policy.OverrideText(limit)
		}
	}
	return set
}

func TestOverridesAreImported(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for _, name := range []string{"other", "p", "q"} {
			w.create(byUser(name))
			w.override(name, "old=1/1m")
			w.override(name, "same=2/1m")
		}
		_, before := w.outgoing(0)
		i := OverridesImport{Set: setOf("p new=3/1m until "+friday, "p old=4/1m", "p same=2/1m",
			"p gone=9/1m until "+thatDay, "q")}

		// The plan changes nothing, and says what an import does.
		want := []OverrideCounts{{"p", 2, 0, 1, 0, 1, 0}, {"q", 0, 0, 0, 2, 0, 0}}
		steps := []OverrideStep{{"p", "new", "", "3/1m until " + friday}, {"p", "old", "1/1m", "4/1m"}}
		check := func(what string, plan OverridesPlan, err error) {
			t.Helper()
			if err != nil || fmt.Sprint(plan.Policies, plan.Steps) != fmt.Sprint(want, steps) {
				t.Errorf("%s: %v, %+v\nwant %+v %+v", what, err, plan, want, steps)
			}
		}
		plan, err := w.PlanOverrides(ctx, w.admin, i)
		check("the plan", plan, err)
		rows := w.entries(AuditQuery{Action: "override.import"})
		if _, revision := w.outgoing(0); revision != before || len(rows) != 0 {
			t.Error("the plan has changed something")
		}

		i.Base = plan.Digest
		done, err := w.ImportOverrides(ctx, w.admin.Saying("commit 0a1b"), i)
		check("the import", done, err)
		wantList(t, "p", w.overrides("p"), "new=3/1m until "+friday, "old=4/1m", "same=2/1m")
		list, _ := w.outgoing(before)
		wantList(t, "to publish", list, "p new=3/1m until "+friday, "p old=4/1m")
		rows = w.entries(AuditQuery{Action: "override.import"})
		if len(rows) != 1 || rows[0].Object != "policy:p" || rows[0].After != `{"set":2,"removed":0}` ||
			rows[0].Note != "commit 0a1b" {
			t.Errorf("the audit log has %+v", rows)
		}

		// The same again changes nothing. What was confirmed is not what would be done now.
		want, steps = []OverrideCounts{{"p", 0, 0, 3, 0, 1, 0}, {"q", 0, 0, 0, 2, 0, 0}}, nil
		wantErr(t, "a plan of before", errOf(w.ImportOverrides(ctx, w.admin, i)), ErrMoved)
		i.Base = ""
		done, err = w.ImportOverrides(ctx, w.admin, i)
		check("again", done, err)

		// What the file does not have is removed if it is asked for, of its policies alone.
		w.override("p", "more=5/1m")
		i.Missing = RemoveMissing
		want = []OverrideCounts{{"p", 0, 1, 3, 0, 1, 0}, {"q", 0, 2, 0, 0, 0, 0}}
		steps = []OverrideStep{{"p", "more", "5/1m", ""}, {"q", "old", "1/1m", ""}, {"q", "same", "2/1m", ""}}
		done, err = w.ImportOverrides(ctx, w.admin, i)
		check("with a removal", done, err)
		wantList(t, "q", w.overrides("q"))
		wantList(t, "other", w.overrides("other"), "old=1/1m", "same=2/1m")

		// Policies of other applications are left out.
		i.Apps = []string{"b"}
		i.Set = setOf("p")
		done, err = w.ImportOverrides(ctx, w.admin, i)
		want, steps = nil, nil
		check("of another application", done, err)
	})
}

// A change by another between the plan and the import is told, whatever it is about; one that makes
// no difference is none.
func TestImportOfOverridesTellsConflicts(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(byUser("p"))
	w.create(byUser("q"))
	w.override("p", "a=1/1m")
	i := OverridesImport{Set: setOf("p a=2/1m", "p b=3/1m")}
	plan := must(w.PlanOverrides(t.Context(), w.admin, i))
	i.Base = plan.Digest
	w.override("p", "c=1/1m")
	w.override("q", "a=1/1m")
	w.override("p", "a=9/1m")
	wantErr(t, "a is another", errOf(w.ImportOverrides(t.Context(), w.admin, i)), ErrMoved)
	w.override("p", "a=1/1m")
	must(w.ImportOverrides(t.Context(), w.admin, i))
	wantList(t, "p", w.overrides("p"), "a=2/1m", "b=3/1m", "c=1/1m")

	// What is removed is published before what takes its place.
	_, before := w.outgoing(0)
	_, err := w.ImportOverrides(t.Context(), w.admin, OverridesImport{Set: setOf("p A=4/1m", "p b=3/1m"),
		Missing: RemoveMissing})
	w.must(err)
	list, _ := w.outgoing(before)
	wantList(t, "to publish", list, "p a=", "p c=", "p A=4/1m")
}

func TestWrongImportsOfOverridesChangeNothing(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(byUser("p"))
		w.create(sample("theirs", "b"))
		secret := byUser("secret")
		secret.Key = "api-key"
		w.create(secret)
		owner := w.person("x", map[string]Role{"a": Owner})

		_, err := w.ImportOverrides(ctx, owner, OverridesImport{Set: setOf("p ok=1/1m", "p a=x",
			"p b=1/1m fixed-window", "secret s3cret=1/1m", "theirs k=1/1m", "none k=1/1m")})
		for _, want := range []string{"overrides.a: limit ", "overrides.b: its algorithm is fixed-window",
			"overrides[0]: the key is not a digest"} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v, want %s", err, want)
			}
		}
		var bad *InvalidError
		if !errors.As(err, &bad) || len(bad.Faults) != 5 || bad.Faults[0].Policy != "none" ||
			bad.Faults[4].Policy != "theirs" || bad.Faults[0].Message != bad.Faults[4].Message {
			t.Errorf("%+v", bad)
		}
		if rows := w.entries(AuditQuery{Action: "override.import", Outcome: Refused}); len(rows) != 1 {
			t.Errorf("%d refusals of a hidden policy", len(rows))
		}
		wantList(t, "p", w.overrides("p"))

		viewer := w.person("v", map[string]Role{"a": Viewer})
		_, err = w.ImportOverrides(ctx, viewer, OverridesImport{Set: setOf("p k=1/1m")})
		wantErr(t, "a viewer", err, ErrDenied)
		must(w.PlanOverrides(ctx, viewer, OverridesImport{Set: setOf("p k=1/1m"), Compare: true}))
		_, err = w.ImportOverrides(ctx, w.admin, OverridesImport{Set: setOf("p k=1/1m"), Compare: true})
		wantFault(t, "compare", err, "compare")
		_, err = w.ImportOverrides(ctx, w.admin, OverridesImport{Missing: "x"})
		wantFault(t, "missing", err, "missing")
	})
}

// Of many mistakes the first are told, and the others counted.
func TestManyWrongOverridesHaveAShortError(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(byUser("p"))
		w.create(sample("theirs", "b"))
		owner := w.person("x", map[string]Role{"a": Owner})
		var bad *InvalidError

		var many []string
		for n := range 1000 {
			many = append(many, fmt.Sprintf("p %03d=x", n))
		}
		_, err := w.PlanOverrides(ctx, owner, OverridesImport{Set: setOf(many...)})
		if !errors.As(err, &bad) || len(bad.Faults) != 101 || bad.Faults[100].Message != "and 900 more" {
			t.Errorf("many mistakes: %v", err)
		}

		// The audit log has the hidden policy, although it is the last of many mistakes.
		_, err = w.ImportOverrides(ctx, owner, OverridesImport{Set: setOf(append(many, "theirs k=1/1m")...)})
		if !errors.As(err, &bad) || len(bad.Faults) != 101 || bad.Faults[100].Message != "and 901 more" {
			t.Errorf("many mistakes and a hidden policy: %v", err)
		}
		if rows := w.entries(AuditQuery{Action: "override.import", Outcome: Refused}); len(rows) != 1 {
			t.Errorf("%d refusals of a hidden policy, want 1", len(rows))
		}
	})
}

// What is exported is what was imported, also of keys with signs of JSON.
func TestExportedOverridesAreImported(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		for _, name := range []string{"none", "p", "q"} {
			w.create(byUser(name))
		}
		set := setOf("p a\"\\\n<=1/1m", "p b=2/1m until "+friday, "q a*=3/1m")
		must(w.ImportOverrides(t.Context(), w.admin, OverridesImport{Set: set}))

		var out bytes.Buffer
		w.must(w.ExportOverrides(t.Context(), w.admin, "", &out))
		got, err := DecodeOverrides(out.Bytes())
		if err != nil || fmt.Sprint(got) != fmt.Sprint(set) {
			t.Errorf("%v %v\n%s", got, err, &out)
		}
		plan, err := w.PlanOverrides(t.Context(), w.admin, OverridesImport{Set: got, Missing: RemoveMissing})
		if w.must(err); plan.Changes() != 0 || plan.Policies[0].Unchanged != 2 {
			t.Errorf("%+v", plan)
		}
		rows := w.entries(AuditQuery{Action: "override.export"})
		if len(rows) != 1 || rows[0].After != `{"policies":2}` {
			t.Errorf("%+v", rows)
		}
		if err := w.ExportOverrides(t.Context(), w.person("s", nil), "a", io.Discard); !errors.Is(err, ErrNotFound) {
			t.Errorf("a stranger: %v", err)
		}
		out.Reset()
		w.must(w.ExportOverrides(t.Context(), w.admin, "b", &out))
		if got, err := DecodeOverrides(out.Bytes()); err != nil || len(got) != 0 {
			t.Errorf("of an application without any: %v %v", got, err)
		}
	})
}

func TestDecodeOverridesRefusesOthers(t *testing.T) {
	for _, text := range []string{``, `{}`, `{"overrides": 1}`, `{"overrides": {"p": 1}}`, `{"policies": []}`,
		`{"overrides": {"p": {"k": 5}}}`, `{"overrides": {"p": {"k": "1/1m", "k": "2/1m"}}}`,
		`{"overrides": {"p": {"k": {"limit": "1/1m", "ends": "x"}}}}`, `{"overrides": {}} x`} {
		if set, err := DecodeOverrides([]byte(text)); err == nil {
			t.Errorf("%s: %v", text, set)
		}
	}
}

// A text names no more than a console has, and what is more is not kept in memory.
func TestTooManyOverridesAreRefusedWhileTheyAreRead(t *testing.T) {
	write := func(n int, format string) []byte {
		var b bytes.Buffer
		for i := range n {
			fmt.Fprintf(&b, ","+format, i)
		}
		return append(append([]byte(`{"overrides":{`), b.Bytes()[1:]...), '}', '}')
	}
	keys := func(n int) []byte {
		list := write(n, `"%d":"1/1m"`)
		return append(append([]byte(`{"overrides":{"q":{},"p":{`), list[len(`{"overrides":{`):]...), '}')
	}

	// Ten policies have as many as they can, and an eleventh has one.
	var all bytes.Buffer
	all.WriteString(`{"overrides":{"last":{"k":"1/1m"}`)
	for p := range 10 {
		fmt.Fprintf(&all, `,"%d":{%s`, p, keys(policy.MaxOverridesBeside)[len(`{"overrides":{"q":{},"p":{`):])
		all.Truncate(all.Len() - len("}}"))
	}
	all.WriteString("}}")

	const names, one = `"%x":{}`, "overrides: it names more than 10000 policies"
	for _, row := range []struct {
		data []byte
		want string
	}{
		{write(policy.MaxPolicies, names), "<nil>"},
		{write(policy.MaxPolicies+1, names), one},
		{write(1_000_000, names), one},
		{keys(policy.MaxOverridesBeside), "<nil>"},
		{keys(policy.MaxOverridesBeside + 1), "overrides.p: it has more than 100000 overrides"},
		{all.Bytes(), "overrides: it has more than 1000000 overrides"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeOverrides(row.data)
		if fmt.Sprint(err) != row.want {
			t.Errorf("%d bytes: %v, want %s", len(row.data), err, row.want)
		}

		// The text as a string, and the names of one object.
		runtime.ReadMemStats(&after)
		got := after.TotalAlloc - before.TotalAlloc
		if row.want == one && got > uint64(len(row.data))+4<<20 {
			t.Errorf("%d bytes of text took %d bytes of memory", len(row.data), got)
		}
	}
}

// What is wrong with an import, and what changes nothing, is found while another writes.
func TestWrongImportOfOverridesWaitsForNoWriter(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(byUser("p"))
		w.override("p", "a=1/1m")
		owner := w.person("x", map[string]Role{"a": Owner})
		many := OverrideSet{}
		for i := range policy.MaxPolicies + 1 {
			many[fmt.Sprint("n", i)] = nil
		}

		w.must(w.db.Update(t.Context(), func(tx *store.Tx) error {
			w.must(tx.LockCounter(store.CounterPolicies))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for _, row := range []struct {
				set  OverrideSet
				want string
			}{
				{setOf("none a=1/1m"), `policy "none": it does not exist, or you may not see it`},
				{setOf("p a=x"), `policy "p": overrides.a: limit "x"`},
				{setOf("p a=1/1m"), "<nil>"},
				{many, "overrides: it names more than 10000 policies"},
			} {
				_, err := w.ImportOverrides(ctx, owner, OverridesImport{Set: row.set})
				if !strings.HasPrefix(fmt.Sprint(err), row.want) {
					t.Errorf("%v, want %s", err, row.want)
				}
			}
			return nil
		}))
	})
}

// What others change after the plan counts: another override, a ban, the policy, and what the actor
// may do.
func TestImportOfOverridesIsPlannedAgain(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(byUser("p"))
		anna := w.person("anna", map[string]Role{"a": Owner})
		w.asked(nil, nil)
		planned := func(texts ...string) *work {
			return must(w.planOverrides(ctx, anna, OverridesImport{Set: setOf(texts...)}))
		}

		// Without another change it is what was planned, also if the first attempt failed.
		first := planned("p a=1/1m")
		must(w.writeOverrides(ctx, anna, first))
		plan := must(w.writeOverrides(ctx, anna, first))
		equal(t, "changes after it was written", plan.Changes(), 0)

		both := planned("p a=2/1m", "p b=2/1m")
		w.override("p", "a=2/1m")
		plan = must(w.writeOverrides(ctx, anna, both))
		equal(t, "changes that are left", plan.Changes(), 1)

		shorter := planned("p b=3/1m")
		w.must(w.ImposeBan(ctx, w.admin, "p", "b", time.Hour))
		plan = must(w.writeOverrides(ctx, anna, shorter))
		equal(t, "kept ban of another", plan.Policies[0].Kept, 1)

		gone := planned("p c=1/1m")
		w.must(w.DeletePolicy(ctx, w.admin, "p", 1))
		_, err := w.writeOverrides(ctx, anna, gone)
		wantFault(t, "a policy that is deleted", err, "")

		w.create(byUser("q"))
		denied := planned("q a=1/1m")
		w.must(w.SetRole(ctx, w.admin, "anna", "a", Viewer))
		wantErr(t, "an owner who is none now", errOf(w.writeOverrides(ctx, anna, denied)), ErrDenied)
	})
}

// A name is not repeated as a whole in a mistake.
func TestMistakesOfOverridesAreShort(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	_, err := w.PlanOverrides(t.Context(), w.admin, OverridesImport{Set: setOf(strings.Repeat("x", 1<<20))})
	if n := len(fmt.Sprint(err)); err == nil || n > 200 {
		t.Errorf("a mistake of %d bytes", n)
	}
}

// An import neither ends nor shortens a ban, and one that it sets is as one by itself.
func TestImportedBans(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for _, p := range []policy.Policy{byUser("p"), byUser("shadow"), banning("own", "a")} {
			if p.Name == "shadow" {
				p.Mode = policy.Shadow
			}
			w.create(p)
		}
		anna := w.person("anna", map[string]Role{"a": Owner})
		w.asked(nil, nil)
		at := func(span time.Duration) string {
			return "banned until " + w.clock.now().Add(span).UTC().Truncate(time.Second).Format(time.RFC3339)
		}
		w.must(w.ImposeBan(ctx, w.admin.Saying("a scraper"), "p", "eve", 24*time.Hour))
		w.must(w.ImposeBan(ctx, w.admin, "p", "bob", time.Hour))
		w.must(w.ImposeBan(ctx, w.admin, "p", "tim", time.Hour))
		bans := must(w.BansBeside(ctx, w.admin, []string{"p"}))
		eve, tim := bans[0].Until, bans[2].Until

		// What a ban by itself may not be, an import's may not be.
		const longest = "the ban: it is not a time from 1s to 87660h0m0s"
		for text, want := range map[string]string{
			"p 1*=banned until 9999-01-01T00:00:00Z":      "overrides.1*: the ban: it is spelled as a prefix",
			"p zed=banned until 9999-01-01T00:00:00Z":     "overrides.zed: " + longest,
			"p zed=" + at(longestBan+2*time.Second):       "overrides.zed: " + longest,
			"shadow zed=" + at(time.Hour):                 "overrides.zed: the ban: the policy bans no keys while it is",
			"own 1*=" + at(time.Minute):                   "overrides.1*: the ban: it is spelled as a prefix",
			"own zed=" + at(25*time.Hour) + ", then 1/1m": "overrides.zed: the ban: it is not a time from 1s to 24h0m0s",
		} {
			_, err := w.ImportOverrides(ctx, w.admin, OverridesImport{Set: setOf(text)})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
		}

		i := OverridesImport{Missing: RemoveMissing, Set: setOf("p eve="+at(2*time.Second)+", then 6/1m",
			"p bob="+at(2*time.Hour), "p new="+at(longestBan), "p past="+at(-time.Hour)+", then 5/1m")}
		plan, err := w.ImportOverrides(ctx, anna.Saying("from Git"), i)
		w.must(err)
		equal(t, "counts", plan.Policies, []OverrideCounts{{Policy: "p", Set: 4, Kept: 2}})
		equal(t, "kept", plan.Kept, []BanKept{{"p", "eve", eve}, {"p", "tim", tim}})
		wantList(t, "p", w.overrides("p"), "bob="+at(2*time.Hour),
			"eve=banned until "+eve.Format(time.RFC3339)+", then 6/1m", "new="+at(longestBan),
			"past="+at(-time.Hour)+", then 5/1m", "tim=banned until "+tim.Format(time.RFC3339))

		// Who has imposed them is known, as of others.
		page := must(w.Overrides(ctx, w.admin, "p", OverridesQuery{}))
		var by []string
		for _, o := range page.Overrides {
			by = append(by, o.Key+" "+o.Ban.By+" "+o.Ban.Comment)
		}
		wantList(t, "who", by, "bob anna from Git", "eve admin a scraper", "new anna from Git", "past  ", "tim admin ")
		rows := w.entries(AuditQuery{Action: "override.import"})
		if len(rows) != 1 || rows[0].After != `{"set":4,"removed":0,"bans":2}` {
			t.Errorf("the audit log has %+v", rows)
		}

		// To see what differs is allowed.
		_, err = w.PlanOverrides(ctx, anna, OverridesImport{Set: i.Set, Compare: true})
		w.must(err)

		// The same again keeps the same, and changes nothing.
		plan, err = w.ImportOverrides(ctx, anna, i)
		if err != nil || plan.Changes() != 0 || len(plan.Kept) != 2 {
			t.Errorf("again: %+v, %v", plan, err)
		}
	})
}

// Each ban of an import has its row in the audit log, so there are not too many.
func TestManyImportedBansAreRefused(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(byUser("p"))
		set := OverrideSet{"p": {}}
		for i := range maxNewBans {
			set["p"][fmt.Sprint("k", i)] = policy.OverrideText("banned until " + friday)
		}
		set["p"]["last"] = set["p"]["k0"]
		_, err := w.ImportOverrides(t.Context(), w.admin, OverridesImport{Set: set})
		wantFault(t, "too many", err, "overrides")
		delete(set["p"], "last")
		must(w.ImportOverrides(t.Context(), w.admin, OverridesImport{Set: set}))

		bans := must(w.BansBeside(t.Context(), w.admin, []string{"p"}))
		var all []*KeyBan
		for i := range bans {
			all = append(all, &bans[i])
		}
		w.must(w.ExplainBans(t.Context(), w.admin, all))
		known := 0
		for _, b := range bans {
			if b.By == FirstUser {
				known++
			}
		}
		equal(t, "bans whose imposer is known", known, maxNewBans)
	})
}

// An import changes as many overrides as one policy has, and as many in their place.
func TestImportOfTooManyChangesIsRefused(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	set := OverrideSet{}
	for _, name := range []string{"p", "q", "r"} {
		w.create(byUser(name))
		set[name] = map[string]policy.OverrideText{}
	}
	for i := range policy.MaxOverridesBeside {
		set["p"][fmt.Sprint("k", i)], set["q"][fmt.Sprint("k", i)] = "1/1m", "1/1m"
	}
	must(w.PlanOverrides(t.Context(), w.admin, OverridesImport{Set: set}))

	set["r"]["k"] = "1/1m"
	_, err := w.ImportOverrides(t.Context(), w.admin, OverridesImport{Set: set})
	wantFault(t, "too many changes", err, "overrides")
	plan := must(w.PlanOverrides(t.Context(), w.admin, OverridesImport{Set: set, Compare: true}))
	equal(t, "changes", plan.Changes(), maxOverrideWrites+1)
}

// A hundred thousand are imported in one transaction.
func TestManyOverridesAreImported(t *testing.T) {
	test.Long(t, "it writes them three times")
	everyEngineOnDisk(t, func(t *testing.T, w *world) {
		w.create(byUser("p"))
		set := OverrideSet{"p": {}}
		for i := range policy.MaxOverridesBeside {
			set["p"][fmt.Sprintf("tenant-%06d", i)] = policy.OverrideText(fmt.Sprintf("%d/1m", 1+i%50))
		}
		begin := time.Now()
		plan, err := w.ImportOverrides(t.Context(), w.admin, OverridesImport{Set: set})
		if err != nil || len(plan.Steps) != maxOverrideSteps || plan.Changes() != policy.MaxOverridesBeside {
			t.Fatalf("%d changes, %d listed, %v", plan.Changes(), len(plan.Steps), err)
		}
		t.Logf("imported in %s", time.Since(begin))

		// All others in their place, which is as many again.
		other := OverrideSet{"p": {}}
		for key, text := range set["p"] {
			other["p"]["x"+key] = text
		}
		_, err = w.ImportOverrides(t.Context(), w.admin, OverridesImport{Set: other})
		if err == nil || !strings.Contains(err.Error(), "would have 200000 overrides, more than 100000") {
			t.Errorf("too many: %v", err)
		}
		begin = time.Now()
		plan, err = w.ImportOverrides(t.Context(), w.admin, OverridesImport{Set: other, Missing: RemoveMissing})
		if err != nil || plan.Changes() != 2*policy.MaxOverridesBeside {
			t.Fatalf("%d changes, %v", plan.Changes(), err)
		}
		t.Logf("replaced in %s", time.Since(begin))
	})
}
