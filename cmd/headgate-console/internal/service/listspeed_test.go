package service

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/test"
)

// TestListIsQuick asks for lists of 10,000 policies in three applications that had requests on
// each of thirty days and in each of the last 24 hours, of which four hundred had some in every
// minute.
func TestListIsQuick(t *testing.T) {
	test.Long(t, "it writes half a million rows")
	everyEngineOnDisk(t, func(t *testing.T, w *world) {
		ctx, now := t.Context(), minute(w.clock.now())
		began := time.Now()
		w.fill()

		// In parts, as one transaction of all rows would be larger than any that the program
		// makes.
		for start := 0; start < manyPolicies; start += 200 {
			w.must(w.db.Update(ctx, func(t *store.Tx) error { return fillList(t, start, start+200, now) }))
		}
		t.Logf("the policies and their traffic were written in %s", time.Since(began).Round(time.Second))

		actors := map[string]Actor{"administrator": w.admin,
			"viewer": w.person("v", map[string]Role{"a": Viewer, "b": Viewer})}

		for name, q := range queries() {
			for who, a := range actors {
				took := median(t, func() error { _, err := w.List(ctx, a, q); return err })
				test.AtMost(t, fmt.Sprintf("%s for the %s", name, who), took, quick)
			}
		}
	})
}

// fillList writes the counts of the policies with these numbers.
func fillList(t *store.Tx, from, to int, now int64) error {
	rows := map[int64][]store.Traffic{}
	for i := from; i < to; i++ {
		id, err := t.SeriesID([]string{"a", "b", "c"}[i%3], fmt.Sprintf("policy-%05d", i))
		if err != nil {
			return err
		}

		// Four hundred policies have rows of minutes, too, as busy ones would.
		for level, long := range map[int64]int64{store.ByDay: 30 * 24 * 60, store.ByHour: 24 * 60,
			store.ByTenMinutes: 24 * 60, store.ByMinute: 120} {
			if level < store.ByHour && i >= 400 {
				continue
			}
			for at := floorTo(now-long, level); at <= now; at += level {
				rows[level] = append(rows[level], store.Traffic{Series: id, At: at,
					Counts: store.TrafficCounts{900, 3, 0, 0, 0, int64(i % 97)}})
			}
		}
	}

	for level, list := range rows {
		if err := t.AddTraffic(int(level), list); err != nil {
			return err
		}
	}
	return nil
}
