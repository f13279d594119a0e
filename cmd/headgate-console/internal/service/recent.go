// This file has what all policies decided lately. To add that up takes a look at every series, so
// it is done after each collection of counts, and kept for all who ask.

package service

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// recent is what all series decided lately, as the database had it at an instant.
type recent struct {
	at     int64 // µs
	series []recentSeries
}

// recentSeries is a series that decided requests lately.
type recentSeries struct {
	app, policy      string
	refused, decided int64 // in the hours that a list shows
	refusedAt        int64 // the first of the last ten minutes in which it refused a request, or 0
}

const (
	// recentLife is for how long requests use what was added up although newer counts were
	// collected. A count is collected at most 80 seconds after the request that it counts, so
	// that an order by counts is at most three minutes behind.
	recentLife = 100 * time.Second

	// recentTime bounds the time in which it is added up in the background.
	recentTime = 30 * time.Second

	// maxRecent is how many series are kept, of some 75 bytes each. If there are more, each
	// request adds up by itself.
	maxRecent = 200_000
)

// recentCounts keeps what was added up last. It is safe for concurrent use.
type recentCounts struct {
	add  func(*store.Tx, span) ([]recentSeries, error)
	most int // series that are kept

	added   *memo[int64, []recentSeries] // by the first hour that is added up
	last    atomic.Pointer[recent]       // nil before the first time
	failing atomic.Bool                  // AddUp failed when it was called last
}

func newRecentCounts() *recentCounts {
	return &recentCounts{add: addUp, most: maxRecent, added: newMemo[int64, []recentSeries](1)}
}

// read returns what was added up within the last age, and else adds up what has changed since.
// While one transaction does that, the others wait.
func (r *recentCounts) read(a *action, age time.Duration) (*recent, error) {
	if last := r.last.Load(); last.younger(age, a.now) {
		return last, nil
	}

	version, err := recentVersion(a.Tx)
	if err != nil {
		return nil, err
	}

	// What was added up is right until a count, a policy or the hour changes. Too many series are
	// not kept, which bounds the memory.
	hours := day(minute(instant(a.now)))
	series, err := r.added.get(a.ctx, hours.from, version, func() ([]recentSeries, int, error) {
		series, err := r.add(a.Tx, hours)
		if len(series) > r.most {
			return series, 0, err
		}
		return series, 1, err
	})
	if err != nil {
		return nil, err
	}

	now := &recent{a.now, series}
	if len(series) <= r.most {
		r.last.Store(now)
	}
	return now, nil
}

// younger reports whether r is younger than an age at an instant in µs. After a clock was set back
// it is not.
func (r *recent) younger(age time.Duration, now int64) bool {
	return r != nil && (time.Duration(now-r.at)*time.Microsecond).Abs() < age
}

// recentVersion returns a number that grows with every change of what addUp reads.
func recentVersion(t *store.Tx) (int64, error) {
	rows, err := t.TrafficVersions()
	if err != nil {
		return 0, err
	}
	policies, err := t.Counter(store.CounterPolicies)
	return rows + policies.Value, err
}

// addUp adds up the series of all policies over the hours that a list shows.
func addUp(t *store.Tx, hours span) ([]recentSeries, error) {
	all, err := t.SeriesOfAllPolicies()
	if err != nil {
		return nil, err
	}

	ids, known := make([]int64, len(all)), make(map[int64]store.Series, len(all))
	for i, s := range all {
		ids[i], known[s.ID] = s.ID, s
	}

	sums, err := t.SumRefusals(int(hours.level), ids, hours.from, hours.to)
	if err != nil {
		return nil, err
	}

	// When it refused last is asked only of a series that refused a request.
	list, places, refusing := make([]recentSeries, len(sums)), map[int64]int{}, []int64{}
	for i, row := range sums {
		s := known[row.Series]
		list[i] = recentSeries{app: s.App, policy: s.Policy, refused: row.Refused, decided: row.Refused + row.Others}
		if row.Refused > 0 {
			places[s.ID], refusing = i, append(refusing, s.ID)
		}
	}

	first := floorTo(hours.now-refusingMinutes, store.ByTenMinutes)
	last, err := t.LastRefusals(store.ByTenMinutes, refusing, first, hours.now+1)
	for _, row := range last {
		list[places[row.Series]].refusedAt = row.At
	}
	return list, err
}

// AddUp adds up what lists of policies are ordered and selected by, if counts were collected or an
// hour has ended since it was called last, so that no page has to wait for that. If it fails, pages
// use what was added up before, and the log says so once.
func (l Ledger) AddUp(ctx context.Context) {
	s := l.s
	bounded, cancel := context.WithTimeout(ctx, recentTime)
	defer cancel()
	err := s.db.View(bounded, func(t *store.Tx) error {
		_, err := s.recent.read(&action{Tx: t, now: s.now(), ctx: bounded}, 0)
		return err
	})

	// That the program ends is no failure.
	if ctx.Err() != nil {
		return
	}

	switch failed := s.recent.failing.Swap(err != nil); {
	case err != nil && !failed:
		s.logger.WarnContext(ctx, "the counts of policies cannot be added up; trying again until it works",
			"error", err)
	case err == nil && failed:
		s.logger.InfoContext(ctx, "the counts of policies are added up again")
	}
}
