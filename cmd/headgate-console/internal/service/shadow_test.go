package service

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// watching is a policy "p" of the application a whose life a test goes through.
type watching struct {
	*world
	p policy.Policy
}

func watch(w *world, mode policy.Mode) *watching {
	w.t.Helper()
	p := sample("p", "a")
	p.Mode = mode
	return &watching{w, w.create(p)}
}

// at moves the clock to a time of the first day, which has to be later.
func (w *watching) at(clock string) {
	w.t.Helper()
	to := must(time.Parse("15:04:05", clock))
	now := w.clock.now()
	d := time.Date(now.Year(), now.Month(), now.Day(), to.Hour(), to.Minute(), to.Second(), 0, time.UTC).Sub(now)
	if d < 0 {
		w.t.Fatalf("%s has passed", clock)
	}
	w.clock.pass(d)
}

// edit changes the policy now.
func (w *watching) edit(change func(*policy.Policy)) {
	w.t.Helper()
	change(&w.p)
	var err error
	w.p, err = w.UpdatePolicy(w.t.Context(), w.admin, w.p)
	w.must(err)
}

func (w *watching) mode(m policy.Mode) { w.t.Helper(); w.edit(func(p *policy.Policy) { p.Mode = m }) }

// counts records decisions of the current minute: n within the limit, over of them above.
func (w *watching) counts(app string, n, over int64) {
	w.t.Helper()
	w.must(w.Ledger().Record(w.t.Context(), app, decisions(w.clock.now(), n, over)))
}

func decisions(at time.Time, n, over int64) stats.Minute {
	return stats.Minute{Start: at.Truncate(time.Minute), Policies: map[string]stats.Counts{
		"p": {events.Allowed: n - over, events.ShadowRefused: over},
		"q": {events.Allowed: 999, events.ShadowRefused: 999},
	}}
}

// saw checks what the policy has seen, and since when.
func (w *watching) saw(what string, since time.Time, n, over int64) {
	w.t.Helper()
	got := must(w.SeenInShadow(w.t.Context(), w.admin, "p"))
	if !got.Since.Equal(since) || got.Counts.Total() != n || got.Over() != over {
		w.t.Errorf("%s: %d of %d since %s, want %d of %d since %s", what, got.Over(), got.Counts.Total(), got.Since,
			over, n, since)
	}
}

func onDay(hour, minute, second int) time.Time {
	return time.Date(2026, 3, 1, hour, minute, second, 0, time.UTC)
}

// What a policy has seen begins with the change since which it decides as it does now, and has
// no decision of another limit or mode.
func TestSeenInShadow(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		v := watch(w, policy.Shadow)
		created := w.clock.now()
		v.saw("at first", created, 0, 0)

		// In its first minute all counts are its own: nothing of the name was there before.
		v.counts("a", 30, 5)
		v.saw("in the minute of its creation", created, 30, 5)

		// Redis has the same minute with more of it: the counts of the database are not added to
		// it.
		w.fleet.minutes = map[string][]stats.Minute{"a": {decisions(w.clock.now(), 40, 7)}}
		v.saw("beside what was not collected yet", created, 40, 7)
		w.fleet.minutes = nil

		// An edit of what does not decide, or of the applications, does not begin anew.
		v.at("12:03:00")
		v.counts("a", 10, 1)
		v.edit(func(p *policy.Policy) { p.Description, p.Priority = "for people", 7 })
		v.edit(func(p *policy.Policy) { p.Apps = []string{"a", "b"} })
		v.counts("b", 2, 2)
		v.saw("after changes that do not matter", created, 42, 8)

		// The limit changes within a minute, whose counts are of both limits: it begins with the
		// next one.
		v.at("12:05:30")
		v.counts("a", 100, 50)
		v.edit(func(p *policy.Policy) { p.Limit = core.Limit{Quota: 9, Period: time.Minute} })
		v.saw("right after a change of the limit", onDay(12, 6, 0), 0, 0)
		v.at("12:06:00")
		v.counts("a", 11, 3)
		v.saw("after a change of the limit", onDay(12, 6, 0), 11, 3)

		v.mode(policy.Enforce)
		v.saw("in force", time.Time{}, 0, 0)

		// At the beginning of a minute the whole minute is its own.
		v.at("12:10:00")
		v.mode(policy.Shadow)
		v.counts("a", 4, 1)
		v.saw("from a whole minute on", onDay(12, 10, 0), 4, 1)

		v.at("12:20:10")
		v.mode(policy.Off)
		v.saw("off", time.Time{}, 0, 0)

		// A policy that is off decides nothing, so the minute before is not mixed.
		v.at("12:21:30")
		v.mode(policy.Shadow)
		v.counts("a", 6, 2)
		v.saw("after it was off for the whole minute", onDay(12, 21, 30), 6, 2)

		// Here it was in shadow mode at the beginning of the minute, before it was off.
		v.at("12:25:10")
		v.mode(policy.Off)
		v.counts("a", 60, 20)
		v.at("12:25:30")
		v.mode(policy.Shadow)
		v.saw("after it was off for a part of the minute", onDay(12, 26, 0), 0, 0)

		v.at("12:30:30")
		w.must(w.DeletePolicy(t.Context(), w.admin, "p", v.p.Version))

		wantErr(t, "deleted", errOf(w.SeenInShadow(t.Context(), w.admin, "p")), ErrNotFound)

		v.at("12:32:30")
		must(w.Rollback(t.Context(), w.admin, "p", v.p.Version, v.p.Version+1))
		v.counts("a", 8, 8)
		v.saw("restored", onDay(12, 32, 30), 8, 8)
	})
}

// Rows of minutes are kept for two days and those of ten minutes for ten. The counts of a policy
// that was in force before begin with the first row that is its own, and those of a new policy
// are whole.
func TestSeenInShadowForLong(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ledger, pruned := w.Ledger(), int64(0)

		// The new policy p is in shadow mode from the beginning, and old is in force for three
		// minutes.
		v := watch(w, policy.Shadow)
		created := w.clock.now()
		v.counts("a", 1, 1)

		old := sample("old", "a")
		old = w.create(old)

		record := func(name string, n int64) {
			t.Helper()
			w.must(ledger.Record(t.Context(), "a",
				stats.Minute{Start: w.clock.now().Truncate(time.Minute),
					Policies: map[string]stats.Counts{name: {events.Allowed: n}}}))
		}
		record("old", 1000)

		v.at("12:03:00")
		old.Mode = policy.Shadow
		must(w.UpdatePolicy(t.Context(), w.admin, old))

		// One digit for each: within ten minutes of the change, within its hour, and after that.
		for _, row := range []struct {
			at string
			n  int64
		}{{"12:04:00", 100}, {"12:15:00", 10}, {"13:30:00", 1}} {
			v.at(row.at)
			record("old", row.n)
			record("p", row.n)
		}

		// The older it gets, the coarser the rows that are left: those of ten minutes begin at
		// 12:10, and those of an hour at 13:00.
		for _, row := range []struct {
			age   time.Duration
			since time.Time
			old   int64
		}{
			{time.Hour, onDay(12, 3, 0), 111}, {3 * 24 * time.Hour, onDay(12, 10, 0), 11},
			{12 * 24 * time.Hour, onDay(13, 0, 0), 1},
		} {
			w.clock.pass(row.age - w.clock.now().Sub(onDay(13, 30, 0)))

			// More parts than there are, so that all rows that are too old go.
			for range 20 {
				pruned = must(ledger.Prune(t.Context(), w.clock.now(), pruned))
			}

			got := must(w.SeenInShadow(t.Context(), w.admin, "old"))
			if !got.Since.Equal(row.since) || got.Counts.Total() != row.old {
				t.Errorf("after %s the old policy has seen %d since %s, want %d since %s", row.age, got.Counts.Total(),
					got.Since, row.old, row.since)
			}
			v.saw("a new policy after "+row.age.String(), created, 112, 1)
		}

		w.clock.pass(500 * 24 * time.Hour)
		if got, err := w.SeenInShadow(t.Context(), w.admin, "p"); err != nil || got.Counts.Total() != 0 ||
			w.clock.now().Sub(got.Since) > KeepTraffic {
			t.Errorf("after what is kept: %+v, %v", got, err)
		}
	})
}

// A person learns the counts of their own applications, and only of policies that they see.
func TestSeenInShadowIsOfOwnApplications(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	v := watch(w, policy.Shadow)
	v.edit(func(p *policy.Policy) { p.Apps = []string{"a", "b"} })
	v.counts("a", 30, 5)
	v.counts("b", 400, 70)

	viewer := w.person("viewer", map[string]Role{"a": Viewer})
	got, err := w.SeenInShadow(t.Context(), viewer, "p")
	if err != nil || got.Counts.Total() != 30 || got.Over() != 5 {
		t.Errorf("a viewer of one of two applications learns %+v, %v", got, err)
	}

	// Without Redis there is what the database has, and it may be late.
	w.fleet.err = errors.New("away")
	if got, err := w.SeenInShadow(t.Context(), w.admin, "p"); err != nil || got.Counts.Total() != 430 || !got.Late {
		t.Errorf("without Redis: %+v, %v", got, err)
	}
}

// The walk through the history is bounded. What lies beyond it does not count.
func TestSeenInShadowOfAnEndlessHistory(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	v := watch(w, policy.Shadow)
	v.counts("a", 30, 5)
	v.at("12:01:00")
	for i := range maxSteps {
		v.edit(func(p *policy.Policy) { p.Priority = i + 1 })
	}
	v.counts("a", 3, 1)
	v.saw("after more changes than are gone through", onDay(12, 1, 0), 3, 1)
}

// FreeName adds numbers to names that are taken, and reveals none that is hidden.
func TestFreeName(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		owner := w.person("owner", map[string]Role{"b": Owner})

		for _, want := range []string{"p", "p-2", "p-3"} {
			if got, err := w.FreeName(t.Context(), w.admin, "p"); got != want || err != nil {
				t.Fatalf("the name is %q, want %q: %v", got, want, err)
			}
			w.create(sample(want, "a"))
		}

		// To one who sees none of these the name is free. The conflict comes when they save it,
		// and says no more.
		if got, err := w.FreeName(t.Context(), owner, "p"); got != "p" || err != nil {
			t.Errorf("a person who sees none is told %q, %v", got, err)
		}

		if list := w.entries(AuditQuery{Outcome: Refused}); len(list) != 0 {
			t.Errorf("the audit log has %v", list)
		}

		// After so many names that are taken the search ends, and the person has to choose.
		for i := range maxNames {
			must(w.CreatePolicy(t.Context(), w.admin, sample("p-"+itoa(int64(i+4)), "a")))
		}

		if got, err := w.FreeName(t.Context(), w.admin, "p"); got != "p-20" || err != nil {
			t.Errorf("after %d names it is %q, %v", maxNames, got, err)
		}

		if got, err := w.FreeName(t.Context(), w.admin, `"><script>`); got != `"><script>` || err != nil {
			t.Errorf("a name of no policy is %q, %v", got, err)
		}
	})
}
