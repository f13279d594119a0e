package service

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// The columns of a row are the verdicts.
var _ = [1]struct{}{}[store.Verdicts-events.Verdicts]

// columnOf has the column of each verdict. Columns keep their order, and verdicts need not.
var columnOf = [events.Verdicts]int{
	events.Allowed: 0, events.Waited: 1, events.Degraded: 2, events.ShadowRefused: 3, events.FailedOpen: 4,
	events.Refused: 5, events.Banned: 6, events.Impossible: 7, events.Denied: 8, events.QueueFull: 9,
	events.Canceled: 10, events.FailedClosed: 11,
	events.Overruled: 12,
}

// maxCount is more than any count of a minute. Instances write counts to Redis, and no sum of
// bounded ones overflows in the database, where the rows of all applications together have all.
const maxCount = 1 << 36

// bounded returns a count of a minute as an instance can have counted it.
func bounded(n int64) int64 { return min(max(0, n), maxCount) }

// columnsOf returns the columns of the counts of a minute.
func columnsOf(c stats.Counts) (row store.TrafficCounts) {
	for v, n := range c {
		row[columnOf[v]] = bounded(n)
	}
	return row
}

func countsOf(row store.TrafficCounts) (c stats.Counts) {
	for v := range c {
		c[v] = row[columnOf[v]]
	}
	return c
}

// Ledger takes the counts of the instances. Several consoles may write the same ones: every
// count is added once. A ledger is for the program itself, and takes no actor.
type Ledger struct {
	s    *Service
	ids  *sync.Map // of series that exist, by application and policy
	most int       // series of an application
}

// maxSeries bounds the series of an application, those of deleted policies included. Instances
// write the names to Redis, and the database keeps their series.
const maxSeries = 4 * policy.MaxPolicies

// Ledger returns the ledger of the service.
func (s *Service) Ledger() Ledger { return Ledger{s, &sync.Map{}, maxSeries} }

// Apps returns the names of all applications.
func (l Ledger) Apps(ctx context.Context) ([]string, error) {
	return view(ctx, l.s, (*store.Tx).AppNames)
}

// Collected returns the instant, by Redis's clock, before which no change of an
// application's counts is missing. It is zero if none was collected.
func (l Ledger) Collected(ctx context.Context, app string) (time.Time, error) {
	us, err := view(ctx, l.s, func(t *store.Tx) (int64, error) { return t.Collected(app) })
	return instant(us), err
}

// SetCollected stores the instant that Collected returns.
func (l Ledger) SetCollected(ctx context.Context, app string, until time.Time) error {
	return l.s.db.Update(ctx, func(t *store.Tx) error {
		if err := t.RaiseCounter(store.CounterTraffic, l.s.now()); err != nil {
			return err
		}
		return t.SetCollected(app, until.UnixMicro())
	})
}

// recorded is how many policies one transaction records, so that no other one waits long.
const recorded = 500

// entry is what is to be recorded of one series.
type entry struct {
	app, policy string
	counts      store.TrafficCounts
	lost        int64
}

// Record writes the counts of an application in a minute. Counts never fall, so that of two
// readings the greater ones are the newer. Policies that are not told apart have one series.
func (l Ledger) Record(ctx context.Context, app string, m stats.Minute) error {
	apart, err := l.apart(ctx, app, m.Policies)
	if err != nil {
		return err
	}

	entries := []entry{{app, store.RequestSeries, columnsOf(m.Requests), bounded(m.Lost)}}

	// The policies without a series of their own are added up in one.
	var others stats.Counts
	for _, name := range slices.Sorted(maps.Keys(m.Policies)) {
		if !apart[name] {
			others.Add(m.Policies[name])
			continue
		}
		entries = append(entries, entry{app, name, columnsOf(m.Policies[name]), 0})
	}

	if others != (stats.Counts{}) {
		entries = append(entries, entry{app, store.OtherPolicies, columnsOf(others), 0})
	}

	// Each chunk is a transaction of its own.
	for some := range slices.Chunk(entries, recorded) {
		if err := l.record(ctx, minute(m.Start), some); err != nil {
			return err
		}
	}
	return nil
}

// apart returns which of the policies have a series of their own, or get one: as many as there is
// room for.
func (l Ledger) apart(ctx context.Context, app string, policies map[string]stats.Counts) (map[string]bool, error) {
	apart := map[string]bool{}
	var fresh []string
	// Only names that this console has not met yet need a place.
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		_, known := l.ids.Load([2]string{app, name})
		if apart[name] = isRuleName(name) && name != store.OtherPolicies; apart[name] && !known {
			fresh = append(fresh, name)
		}
	}

	if len(fresh) == 0 {
		return apart, nil
	}

	err := l.s.db.View(ctx, func(t *store.Tx) error {
		n, err := t.SeriesCount([]string{app})
		if err != nil || n+int64(len(fresh)) <= int64(l.most) {
			return err
		}

		// Series that exist, made by another console or before the start, have their place already.
		series, err := t.SeriesOf(app)
		exists := map[string]bool{}
		for _, s := range series {
			exists[s.Policy] = true
		}

		free := l.most - len(series)
		for _, name := range fresh {
			if exists[name] {
				continue
			}
			apart[name] = free > 0
			free--
		}
		return err
	})
	return apart, err
}

// isRuleName reports whether the counts of a name have a series of their own.
func isRuleName(s string) bool {
	if s == "" || len(s) > maxRuleName || !utf8.ValidString(s) {
		return false
	}
	for _, c := range s {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// maxRuleName is the largest number of bytes of a name that has a series.
const maxRuleName = 128

// record adds to the rows of each level by how much the counts of a minute have grown. The
// row of the minute itself says what was added before.
func (l Ledger) record(ctx context.Context, at int64, entries []entry) error {
	ids := make([]int64, len(entries))
	err := l.s.db.Update(ctx, func(t *store.Tx) error {
		if err := t.RaiseCounter(store.CounterTraffic, l.s.now()); err != nil {
			return err
		}
		if err := t.RaiseTrafficVersion(entries[0].app); err != nil {
			return err
		}

		for i, e := range entries {
			var err error
			if ids[i], err = l.id(t, e.app, e.policy); err != nil {
				return err
			}
		}

		known, err := t.TrafficAt(store.ByMinute, at, ids)
		if err != nil {
			return err
		}

		before := map[int64]store.Traffic{}
		for _, r := range known {
			before[r.Series] = r
		}

		return l.grow(t, at, ids, entries, before)
	})

	// The ids are kept after the commit only: one of a transaction that failed may be another's
	// later.
	if err == nil {
		for i, e := range entries {
			l.ids.Store([2]string{e.app, e.policy}, ids[i])
		}
	}

	return err
}

func (l Ledger) id(t *store.Tx, app, policy string) (int64, error) {
	if id, ok := l.ids.Load([2]string{app, policy}); ok {
		return id.(int64), nil
	}
	return t.SeriesID(app, policy)
}

// grow adds what the entries have more than the rows before.
func (l Ledger) grow(t *store.Tx, at int64, ids []int64, entries []entry, before map[int64]store.Traffic) error {
	var rows []store.Traffic
	for i, e := range entries {
		r := store.Traffic{Series: ids[i], Counts: e.counts, Lost: e.lost}
		if r.Reduce(before[ids[i]]); r.Empty() {
			continue
		}
		rows = append(rows, r)
		// Requests also count in the series of all applications together.
		if e.policy == store.RequestSeries {
			everywhere, err := t.SeriesID("", store.RequestSeries)
			if err != nil {
				return err
			}
			r.Series = everywhere
			rows = append(rows, r)
		}
	}

	// The growth goes into one row of each level: that of the span in which the minute lies.
	for _, level := range levels {
		for i := range rows {
			rows[i].At = floorTo(at, level)
		}
		if err := t.AddTraffic(int(level), rows); err != nil {
			return err
		}
	}
	return nil
}

// pruned is how many series one transaction prunes.
const pruned = 20

// Prune deletes rows that are too old at an instant of Redis's clock, of some series after
// the series last. It returns the last of these series, or 0 after the last of all.
//
// The versions of the rows, by which sums are kept, stay as they are: a range with a deleted row
// cannot be asked for any more, see prunedMinutes, so the sum of any other is still right.
func (l Ledger) Prune(ctx context.Context, now time.Time, last int64) (next int64, err error) {
	err = l.s.db.Update(ctx, func(t *store.Tx) error {
		ids, err := t.SeriesAfter(last, pruned)
		// A full page may be followed by another one.
		if next = 0; len(ids) == pruned {
			next = ids[pruned-1]
		}
		if err != nil {
			return err
		}

		for _, level := range levels {
			if err := t.ForgetTraffic(int(level), ids, floorTo(minute(now)-prunedMinutes(level), level)); err != nil {
				return err
			}
		}
		return nil
	})
	return next, err
}
