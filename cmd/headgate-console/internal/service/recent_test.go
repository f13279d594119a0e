package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// record writes the counts of policies of an application in the current minute.
func (w *world) record(app string, refused map[string]int64) {
	w.t.Helper()
	m := stats.Minute{Start: w.clock.now().Truncate(time.Minute), Policies: map[string]stats.Counts{}}
	for name, n := range refused {
		m.Policies[name] = stats.Counts{events.Refused: n}
	}
	w.must(w.Ledger().Record(w.t.Context(), app, m))
}

// comesFirst checks which policy an actor is told to have refused most.
func (w *world) comesFirst(when string, a Actor, want string) {
	w.t.Helper()
	page := must(w.Policies(w.t.Context(), a, Query{Sort: "-refused"}))
	if got := page.Policies[0].Name; got != want {
		w.t.Errorf("%s: %s comes first, want %s", when, got, want)
	}
}

// addUps counts how often the series are added up, which then fails while there is an error.
func (w *world) addUps() (n *atomic.Int64, fail *atomic.Pointer[error]) {
	n, fail = &atomic.Int64{}, &atomic.Pointer[error]{}
	w.recent.add = func(t *store.Tx, hours span) ([]recentSeries, error) {
		n.Add(1)
		if err := fail.Load(); err != nil {
			return nil, *err
		}
		return addUp(t, hours)
	}
	return n, fail
}

// A count is in the database 80 seconds after its request, and in an order of the list 100 seconds
// later: within three minutes.
func TestRecentCountsAreAtMostSoOld(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(sample("one", "a"))
		w.create(sample("two", "a"))

		n, _ := w.addUps()
		w.record("a", map[string]int64{"one": 5})
		w.comesFirst("at first", w.admin, "one")

		// The newer counts are in the database, and the order is by those of 100 seconds ago.
		w.record("a", map[string]int64{"two": 9})
		w.clock.pass(100*time.Second - time.Microsecond)
		w.comesFirst("before their time is over", w.admin, "one")

		// A page orders what it shows by the numbers that it shows.
		if list, err := w.List(t.Context(), w.admin, Query{Sort: "-refused"}); err != nil ||
			list.Rows[0].Name != "two" {
			t.Errorf("a page is not in the order of its numbers (%v)", err)
		}

		w.clock.pass(time.Microsecond)
		w.comesFirst("afterwards", w.admin, "two")

		equal(t, "times that the series were added up", n.Load(), 2)

		// What was added up at a later time by this clock is not taken for new.
		w.clock.pass(-time.Hour)
		w.record("a", map[string]int64{"one": 99})
		w.comesFirst("after the clock was set back", w.admin, "one")
	})
}

func TestAddUpIsForPages(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(sample("one", "a"))
		w.create(sample("two", "a"))

		n, _ := w.addUps()
		added := func(when string, want int64) {
			t.Helper()
			w.Ledger().AddUp(ctx)
			equal(t, fmt.Sprintf("%s: times that the series were added up", when), n.Swap(0), want)
		}

		// The background adds up when there is something new, so that a page does not have to.
		added("at first", 1)
		added("without a change", 0)

		w.record("a", map[string]int64{"one": 5})
		added("after a collection", 1)

		w.must(w.Ledger().SetCollected(ctx, "a", w.clock.now()))
		added("after a collection of nothing", 0)

		// What a collection brings later is added up by the background, not by the next page.
		w.clock.pass(recentLife - time.Microsecond)
		w.comesFirst("after a collection", w.admin, "one")
		w.record("a", map[string]int64{"two": 9})
		added("a while later", 1)

		w.comesFirst("at once", w.admin, "two")
		w.clock.pass(recentLife)
		w.comesFirst("without a change", w.admin, "two")

		if n.Load() != 0 {
			t.Error("a page added up what was the same")
		}

		// The hour that left the range, and policies that came and went, change the counts, too.
		w.clock.pass(time.Hour)
		added("an hour later", 1)
		w.must(w.DeletePolicy(ctx, w.admin, "two", 1))
		added("after a deletion", 1)

		must(w.Rollback(ctx, w.admin, "two", 1, 2))
		added("after a restoration", 1)
		w.comesFirst("after a restoration", w.admin, "two")
	})
}

func TestAddUpThatFailsKeepsWhatWasAddedUp(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx, log := t.Context(), &test.Log{}
		w.logger = slog.New(slog.NewTextHandler(log, nil))
		w.create(sample("one", "a"))
		w.create(sample("two", "a"))

		_, fail := w.addUps()
		read := 0

		logged := func(when, want string) {
			t.Helper()
			text := log.String()[read:]
			read += len(text)
			if lines := strings.Count(text, "\n"); !strings.Contains(text, want) || lines != min(len(want), 1) {
				t.Errorf("%s the log has %q, want %q once", when, text, want)
			}
		}

		w.record("a", map[string]int64{"one": 5})
		w.Ledger().AddUp(ctx)

		// Three failures are one warning.
		broken := errors.New("broken")
		fail.Store(&broken)
		w.record("a", map[string]int64{"two": 9})
		for range 3 {
			w.Ledger().AddUp(ctx)
		}

		logged("after failures",
			`level=WARN msg="the counts of policies cannot be added up; trying again until it works" error=broken`)

		// Pages go on with what was added up before, until it is too old to be shown.
		w.clock.pass(recentLife - time.Microsecond)
		w.comesFirst("while it fails", w.admin, "one")

		w.clock.pass(time.Microsecond)
		_, err := w.Policies(ctx, w.admin, Query{Sort: "-refused"})
		wantErr(t, "a page that needs newer counts", err, broken)

		fail.Store(nil)
		for range 3 {
			w.Ledger().AddUp(ctx)
		}

		logged("afterwards", `level=INFO msg="the counts of policies are added up again"`)
		w.comesFirst("afterwards", w.admin, "two")

		// The end of the console is no failure.
		stopped, stop := context.WithCancel(ctx)
		stop()
		w.record("a", map[string]int64{"one": 10})
		w.Ledger().AddUp(stopped)
		logged("at the end of the console", "")
	})
}

func TestRecentCountsOfTooManySeriesAreNotKept(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(sample("one", "a", "b"))
	w.create(sample("two", "a"))

	// Two series are as many as are kept. The second round has four.
	n, _ := w.addUps()
	w.recent.most = 2

	for i, app := range []string{"a", "b"} {
		w.clock.pass(recentLife)
		w.record(app, map[string]int64{"one": 5, "two": 9})
		w.Ledger().AddUp(t.Context())

		// What was not kept is added up for the request.
		n.Store(0)
		w.comesFirst(app, w.admin, "two")
		equal(t, fmt.Sprintf("times that a request adds up %d series", 2*(i+1)), n.Load(), int64(i))
	}
}

// What was added up is kept for all people, and a role counts when it is read.
func TestRecentCountsFollowRolesAtOnce(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(sample("both", "a", "b"))
		w.create(sample("one", "a"))

		n, _ := w.addUps()
		viewer := w.person("v", map[string]Role{"a": Viewer, "b": Viewer})
		w.record("a", map[string]int64{"one": 5})
		w.record("b", map[string]int64{"both": 9})

		w.fleet.err = errors.New("away")
		sees := func(when string, a Actor, want ...string) {
			t.Helper()
			page, err := w.Policies(ctx, a, Query{Refusing: true})
			if got := names(page.Policies); err != nil || !slices.Equal(got, want) || page.Total != int64(len(want)) {
				t.Errorf("%s: %v of %d refuse, want %v (%v)", when, got, page.Total, want, err)
			}
		}

		w.comesFirst("with both roles", viewer, "both")
		sees("with both roles", viewer, "both", "one")

		// A role less takes the counts of its application along, though nothing is added up anew.
		w.must(w.SetRole(ctx, w.admin, "v", "b", NoRole))
		w.comesFirst("with one role", viewer, "one")
		sees("with one role", viewer, "one")
		sees("as the administrator", w.admin, "both", "one")

		w.must(w.SetRole(ctx, w.admin, "v", "a", NoRole))
		sees("without a role", viewer)

		equal(t, "times that the series were added up", n.Load(), 1)
	})
}

// A policy refuses now for ten minutes to the minute, however old the counts are, and those of
// Redis are as new as ever.
func TestRefusingNowIsExact(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		for _, name := range []string{"one", "two", "three"} {
			w.create(sample(name, "a"))
		}

		w.clock.pass(9*time.Minute + 59*time.Second - time.Duration(w.clock.now().Nanosecond())) // 12:09:59
		w.record("a", map[string]int64{"one": 1})
		w.Ledger().AddUp(t.Context())

		w.clock.pass(9 * time.Minute) // 12:18:59
		w.record("a", map[string]int64{"two": 1})
		w.Ledger().AddUp(t.Context())
		w.refusingNow([]string{"one", "two"})

		// Redis has the current minute, which is not collected yet.
		now := stats.Minute{Start: w.clock.now().Truncate(time.Minute),
			Policies: map[string]stats.Counts{"three": {events.Refused: 1}}}
		w.fleet.minutes = map[string][]stats.Minute{"a": {now}}
		w.refusingNow([]string{"one", "three", "two"})

		// At 12:20:00 the minute of 12:09 is over by more than ten minutes, though nothing was
		// added up again.
		w.clock.pass(time.Minute) // 12:19:59
		w.refusingNow([]string{"one", "three", "two"})
		w.clock.pass(time.Second) // 12:20:00, by counts of 12:18:59
		w.refusingNow([]string{"three", "two"})
	})
}
