package service

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// An overview has what was decided in the last whole minute, who refuses, and the range before.
func TestOverviewOfTheMoment(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		now := w.clock.now().Truncate(time.Minute)
		w.must(w.Ledger().Record(ctx, "a", minuteWith(now.Add(-90*time.Minute), 7, 3)))

		// The refusal of six minutes ago is not of now, and what is in shadow refuses nothing.
		decided := func(at time.Duration, n int64, c map[string]stats.Counts) stats.Minute {
			return stats.Minute{Start: now.Add(at), Requests: stats.Counts{events.Allowed: n}, Policies: c}
		}
		w.fleet.minutes = map[string][]stats.Minute{
			"a": {
				decided(-6*time.Minute, 9, map[string]stats.Counts{"old": {events.Refused: 50}}),
				decided(-4*time.Minute, 9, map[string]stats.Counts{"p": {events.Banned: 2}, "": {events.Refused: 99}}),
				decided(-3*time.Minute, 9, nil), decided(-2*time.Minute, 9, nil),
				decided(-time.Minute, 60, map[string]stats.Counts{"p": {events.Allowed: 4},
					"q": {events.ShadowRefused: 9}}),
				decided(0, 5, map[string]stats.Counts{"p": {events.Refused: 1}}),
			},
			"b": {decided(-time.Minute, 30, map[string]stats.Counts{"p": {events.Denied: 8}}), decided(0, 1, nil)},
		}

		viewer := w.person("viewer", map[string]Role{"a": Viewer})
		for _, row := range []struct {
			who      Actor
			app      string
			refusing string
			lately   int64
		}{
			{w.admin, "", "b/p:8-8 a/p:7-3 ", 90}, {w.admin, "a", "a/p:7-3 ", 60}, {viewer, "", "a/p:7-3 ", 60},
		} {
			o := must(w.Overview(ctx, row.who, TrafficQuery{App: row.app, Last: time.Hour}))
			var refusing []Sum
			for _, sum := range o.Refusing {
				refusing = append(refusing, *sum)
			}
			if got := told(refusing); got != row.refusing || o.Lately.Span != time.Minute ||
				o.Lately.Counts.Total() != row.lately || o.Before.Total() != 10 || o.Before[events.Refused] != 3 {
				t.Errorf("%s, %q: %s, %+v, before %v", row.who.user, row.app, got, o.Lately, o.Before)
			}
		}

		// Nothing is said of now without Redis.
		w.fleet.err = errors.New("away")
		w.fleet.minutes = nil
		if o := must(w.Overview(ctx, w.admin, TrafficQuery{})); o.Lately.Span != 0 || o.Refusing != nil {
			t.Errorf("without Redis it tells %+v and %v", o.Lately, o.Refusing)
		}
	})
}

// tensOf returns the minutes up to one, as they were seen at an instant: ten i of minute m has m+i
// requests.
func tensOf(start, seen time.Time) (list []stats.Minute) {
	for back := range int64(stats.Minutes) {
		m := stats.Minute{Start: start.Add(time.Duration(back-stats.Minutes+1) * time.Minute), Seen: seen,
			Tens: make([]stats.Counts, stats.Tens)}
		for ten := range m.Tens {
			m.Tens[ten][events.Allowed] = back + int64(ten)
			m.Requests.Add(m.Tens[ten])
		}
		list = append(list, m)
	}
	return list
}

// byTens returns the overview of an application, or of all, with steps of ten seconds if they are
// known, after a check that its points add up.
func (w *world) byTens(app string) Overview {
	w.t.Helper()
	o := must(w.Overview(w.t.Context(), w.admin, TrafficQuery{App: app, Step: time.Minute, Fine: true}))
	var points, apps int64
	for _, p := range o.Traffic.Points {
		points += p.Counts.Total()
	}
	for _, a := range o.Apps {
		apps += a.Counts.Total()
	}
	if all := o.Traffic.Total.Total(); points != all || apps != all {
		w.t.Errorf("the points have %d requests, all are %d, and the applications have %d", points, all, apps)
	}
	return o
}

// The last quarter of an hour has steps of ten seconds, which add up to the minutes. Figures of now
// are of the last ten seconds that are whole.
func TestOverviewByTens(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	start := w.clock.now().Truncate(time.Minute)

	// They are whole three seconds after their end, also those that end with a minute.
	for at, want := range map[time.Duration]int64{32 * time.Second: 14 + 1, 33 * time.Second: 14 + 2,
		2 * time.Second: 13 + 4, 3 * time.Second: 13 + 5} {
		seen := start.Add(at)
		w.fleet.minutes = map[string][]stats.Minute{"a": tensOf(start, seen)}
		o := w.byTens("a")
		if o.Lately.Span != stats.Ten || o.Lately.Counts.Total() != want || !o.Traffic.Now.Equal(seen) {
			t.Errorf("after %s there are %+v now, want %d", at, o.Lately, want)
		}
		if p := o.Traffic.Points; o.Traffic.Step != stats.Ten || len(p) != 90 || p[89].Counts.Total() != 14+5 ||
			!p[89].At.Equal(start.Add(50*time.Second)) {
			t.Errorf("the steps are %s, %d", o.Traffic.Step, len(p))
		}
	}
}

// Where tens are not known of the whole range, steps are minutes.
func TestOverviewWithoutTens(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	start := w.clock.now().Truncate(time.Minute)
	minutes := func() []stats.Minute { return tensOf(start, start.Add(32*time.Second)) }

	// Of a minute without tens, now is the last whole one.
	w.fleet.minutes = map[string][]stats.Minute{"a": minutes()}
	w.fleet.minutes["a"][13].Tens, w.fleet.minutes["a"][14].Tens = nil, nil
	if o := w.byTens("a"); o.Traffic.Step != time.Minute || o.Lately.Span != time.Minute ||
		o.Lately.Counts.Total() != 6*13+15 {
		t.Errorf("without tens the steps are %s, and now is %+v", o.Traffic.Step, o.Lately)
	}

	// An hour has minutes, and all applications together have tens only if each has.
	w.fleet.minutes["a"] = minutes()
	if o := must(w.Overview(t.Context(), w.admin, TrafficQuery{Last: time.Hour, Fine: true})); o.Traffic.Step !=
		time.Minute {
		t.Errorf("the steps of an hour are %s", o.Traffic.Step)
	}
	if o := w.byTens(""); o.Traffic.Step != time.Minute || o.Lately.Span == stats.Ten {
		t.Errorf("without the tens of an application the steps are %s, and now is %+v", o.Traffic.Step, o.Lately)
	}

	// Redis has lost what the database has.
	w.must(w.Ledger().Record(t.Context(), "a", minuteWith(start.Add(-2*time.Minute), 1000, 0)))
	if o := w.byTens("a"); o.Traffic.Step != time.Minute {
		t.Errorf("with more in the database the steps are %s", o.Traffic.Step)
	}
}

// An overview says what a change changed, as far as the actor sees the policy before it.
func TestOverviewTellsChanges(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.create(sample("p", "a"))
		w.clock.pass(time.Second)
		p.Limit = core.MustParseLimit("8/1m")
		p = must(w.UpdatePolicy(ctx, w.admin, p))
		w.clock.pass(time.Second)
		p.Apps = []string{"b"}
		p = must(w.UpdatePolicy(ctx, w.admin, p))
		w.clock.pass(time.Second)
		w.must(w.DeletePolicy(ctx, w.admin, "p", p.Version))

		told := func(a Actor) (text string) {
			for _, m := range must(w.Overview(ctx, a, TrafficQuery{})).Changes {
				text += fmt.Sprint(m.Version, m.Created, m.Deleted, m.Changes, " ")
			}
			return text
		}
		if got := told(w.admin); got != "4 false true [] 3 false false [{apps a b}] "+
			"2 false false [{limit 100/1m 8/1m}] 1 true false [] " {
			t.Errorf("the administrator reads %s", got)
		}

		// Who does not see the policy before its move is told that it changed, and not how.
		if got := told(w.person("of-b", map[string]Role{"b": Viewer})); got != "4 false true [] 3 false false [] " {
			t.Errorf("a viewer of b reads %s", got)
		}
	})
}
