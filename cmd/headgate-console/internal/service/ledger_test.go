package service

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// An instance that writes impossible counts to Redis spoils those of its own application alone.
func TestLedgerBoundsCounts(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx, ledger := t.Context(), w.Ledger()
		at := w.clock.now().Truncate(time.Minute).Add(-10 * time.Minute)
		for i := range 3 { // each sum would overflow at the second minute
			garbage := stats.Counts{events.Allowed: math.MaxInt64, events.Refused: math.MinInt64,
				events.Denied: math.MaxInt64}
			w.must(ledger.Record(ctx, "a", stats.Minute{Start: at.Add(time.Duration(i) * time.Minute),
				Requests: garbage, Lost: math.MaxInt64,
				Policies: map[string]stats.Counts{"p": garbage, "": garbage}}))
		}

		w.must(ledger.Record(ctx, "b", stats.Minute{Start: at,
			Requests: stats.Counts{events.Allowed: 7, events.Refused: 2}}))
		w.fleet.minutes = map[string][]stats.Minute{"a": {{Start: at.Add(9 * time.Minute),
			Requests: stats.Counts{events.Allowed: math.MaxInt64, events.Refused: -1}, Lost: -1}}}

		// Each count is cut to a bound before it is added: three minutes of the database and one
		// of Redis. What is negative is 0.
		o := must(w.Overview(ctx, w.admin, TrafficQuery{Last: time.Hour}))
		want := stats.Counts{events.Allowed: 4*maxCount + 7, events.Refused: 2, events.Denied: 3 * maxCount}
		if o.Traffic.Total != want || o.Traffic.Lost != 3*maxCount {
			t.Errorf("the total is %v and %d, want %v and %d", o.Traffic.Total, o.Traffic.Lost, want, 3*int64(maxCount))
		}

		for _, s := range o.Apps {
			if want := (stats.Counts{events.Allowed: 7, events.Refused: 2}); s.App == "b" && s.Counts != want {
				t.Errorf("the other application has %v, want %v", s.Counts, want)
			}
		}

		if n := len(o.Policies); n != 2 || o.Policies[1].Policy != store.OtherPolicies &&
			o.Policies[0].Policy != store.OtherPolicies {
			t.Errorf("%+v", o.Policies)
		}
	})
}

// An instance that invents names of policies does not fill the database: beyond a bound they are
// counted together, each count once, whatever other consoles record.
func TestLedgerBoundsSeries(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		ledgers := []Ledger{w.Ledger(), w.another().Ledger(), w.another().Ledger()}
		for i := range ledgers {
			ledgers[i].most = 30
		}

		at := w.clock.now().Truncate(time.Minute).Add(-10 * time.Minute)
		one := stats.Counts{events.Refused: 1}

		// Five minutes with twenty new names each: a hundred, where thirty are allowed.
		for i := range 5 {
			m := stats.Minute{Start: at.Add(time.Duration(i) * time.Minute),
				Policies: map[string]stats.Counts{"login": one, "*": one, "": one}}
			for n := range 20 {
				m.Policies[fmt.Sprint("invented-", i, "-", n)] = one
			}

			for _, l := range ledgers { // each of which has another one's memory of the names
				w.must(l.Record(ctx, "a", m))
			}
			ledgers[i%3].ids.Clear() // it was started again
		}

		// The bound is of one application: another one has its own series.
		w.must(ledgers[0].Record(ctx, "b", stats.Minute{Start: at, Policies: map[string]stats.Counts{"login": one}}))
		list := must(w.TrafficByPolicy(ctx, w.admin, TrafficQuery{App: "a", Last: time.Hour}))

		// Every count is there once: 23 in each of five minutes, under a name or with the others.
		sums, total := map[string]int64{}, int64(0)
		for _, s := range list {
			sums[s.Policy] = s.Counts[events.Refused]
			total += s.Counts[events.Refused]
		}

		if sums["login"] != 5 || total != 5*23 || sums[store.OtherPolicies] != total-5-int64(len(list)-2) {
			t.Errorf("%d series have %d counts, of them login %d and the others %d", len(list), total, sums["login"],
				sums[store.OtherPolicies])
		}

		// With those of the others, of the application b, and of all together.
		if n := w.count("traffic_series"); n > 30+4 {
			t.Errorf("there are %d series", n)
		}
	})
}
