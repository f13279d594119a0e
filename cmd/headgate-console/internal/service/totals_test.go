package service

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// truth are the counts of an application in all minutes, by policy; "" stands for requests.
type truth map[int64]map[string]stats.Counts

// in returns the plain sums over the minutes of a span.
func (f truth) in(s span) map[string]stats.Counts {
	sums := map[string]stats.Counts{}
	for at, counts := range f {
		for name, c := range counts {
			if at < s.from || at >= s.to || c == (stats.Counts{}) {
				continue
			}

			sum := sums[name]
			sum.Add(c)
			sums[name] = sum
		}
	}
	return sums
}

// minute returns a minute as the instances report it.
func (f truth) minute(at int64) stats.Minute {
	m := stats.Minute{Start: atMinute(at), Policies: map[string]stats.Counts{}}
	for name, c := range f[at] {
		if name == "" {
			m.Requests = c
			continue
		}
		m.Policies[name] = c
	}
	return m
}

// count adds counts of requests and of some policies to a minute.
func (f truth) count(at int64, r *rand.Rand) {
	if f[at] == nil {
		f[at] = map[string]stats.Counts{}
	}

	for i := range 1 + r.IntN(4) {
		name := []string{"", "p", "q", "r"}[i]
		c := f[at][name]
		c.Add(stats.Counts{events.Allowed: r.Int64N(1000), events.Refused: r.Int64N(10), events.Banned: r.Int64N(2)})
		f[at][name] = c
	}
}

// However a range lies, whichever rows make it up, whatever was deleted because it is old and
// whatever is still in Redis: the sums are those of the minutes. Two consoles collect, of which
// each keeps sums while the other one adds to them.
func TestTotalsAreTheSumsOfTheMinutes(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		r := rand.New(rand.NewPCG(7, 7))
		consoles := []*Service{w.Service, w.another()}
		facts, checked := truth{}, 0
		changed := map[int64]time.Time{} // when instances last changed a minute

		// Between the rounds so much time passes that all levels of rows begin to expire.
		for round := range 60 {
			w.clock.pass([]time.Duration{0, time.Minute, 9 * time.Minute, 7 * time.Hour, 31 * time.Hour,
				20 * 24 * time.Hour}[r.IntN(6)])

			// Instances count in the newest minutes, in those that Redis has, or in any of the
			// last day.
			now := minute(w.clock.now())
			var fresh []int64
			for range 6 {
				at := now - []int64{r.Int64N(3), r.Int64N(stats.Minutes), r.Int64N(24 * 60)}[r.IntN(3)]
				facts.count(at, r)
				fresh, changed[at] = append(fresh, at), w.clock.now()
			}

			// Redis has the last minutes as they are.
			var live []stats.Minute
			for at := now - stats.Minutes + 1; at <= now; at++ {
				m := facts.minute(at)
				m.Changed = changed[at]
				live = append(live, m)
			}

			w.fleet.mu.Lock()
			w.fleet.minutes = map[string][]stats.Minute{"a": live}
			w.fleet.mu.Unlock()
			for _, at := range fresh { // some of what Redis has is collected later
				if at <= now-stats.Minutes || r.IntN(2) == 0 {
					w.must(consoles[r.IntN(2)].Ledger().Record(ctx, "a", facts.minute(at)))
				}
			}
			if r.IntN(2) == 0 { // all that had finished is, as the collector does it
				for at := now - stats.Minutes + 1; at < now; at++ {
					if facts[at] != nil {
						w.must(consoles[r.IntN(2)].Ledger().Record(ctx, "a", facts.minute(at)))
					}
				}
				w.must(consoles[r.IntN(2)].Ledger().SetCollected(ctx, "a", atMinute(now).Add(-10*time.Second)))
			}

			for last, more := int64(0), true; more; more = last != 0 {
				last = must(consoles[r.IntN(2)].Ledger().Prune(ctx, w.clock.now(), last))
			}

			for range 8 {
				checked += checkTotals(t, w, consoles[r.IntN(2)], facts, r, round)
			}
			for at := now - stats.Minutes + 1; at <= now; at++ { // before they leave Redis
				if facts[at] != nil { // the collector is told of no others
					w.must(consoles[r.IntN(2)].Ledger().Record(ctx, "a", facts.minute(at)))
				}
			}
		}

		// Some random ranges are too long for their step. If all were, the test would pass.
		if checked < 200 {
			t.Errorf("only %d ranges could be read", checked)
		}
	})
}

// checkTotals compares the sums of a random range, and returns 0 if it is too long for its step.
func checkTotals(t *testing.T, w *world, s *Service, facts truth, r *rand.Rand, round int) int {
	t.Helper()
	ctx, now := t.Context(), w.clock.now()
	long := []time.Duration{20 * time.Minute, 2 * time.Hour, 48 * time.Hour, 10 * 24 * time.Hour, 100 * 24 * time.Hour,
		400 * 24 * time.Hour}[r.IntN(6)]

	// Any step, and a range that begins anywhere and ends somewhere after it or now.
	q := TrafficQuery{App: "a", Step: append([]time.Duration{0}, Steps...)[r.IntN(len(Steps)+1)]}
	q.From = now.Add(-time.Duration(r.Int64N(int64(long))))
	if r.IntN(2) == 0 {
		q.To = q.From.Add(1 + time.Duration(r.Int64N(int64(now.Sub(q.From)+time.Minute))))
	}

	if r.IntN(8) == 0 {
		q.From = now.Add(-long) // on the boundary of what is kept
	}

	span, err := q.span(now)
	if err != nil {
		return 0
	}

	want := facts.in(span)
	what := fmt.Sprintf("round %d, %+v", round, span)

	o := must(s.Overview(ctx, w.admin, q))

	got := map[string]stats.Counts{}
	for _, sum := range o.Policies {
		got[sum.Policy] = sum.Counts
	}

	if o.Apps[0].Counts != want[""] || o.Traffic.Total != want[""] {
		t.Errorf("%s: %v and %v requests, want %v", what, o.Apps[0].Counts, o.Traffic.Total, want[""])
	}

	// A policy by itself is asked for in another way than all beside each other.
	for _, name := range []string{"p", "q", "r"} {
		q.Policy = name
		chart := must(s.Traffic(ctx, w.admin, q))
		if got[name] != want[name] || chart.Total != want[name] {
			t.Errorf("%s: %v and %v of %s, want %v", what, got[name], chart.Total, name, want[name])
		}
	}
	return 1
}

// A range that begins where the rows of its level are about to be deleted is whole, to the
// beginning of its first step: before they are deleted and afterwards, for a console that keeps its
// sums and for one that has just started.
func TestTotalsAreWholeWhereRowsExpire(t *testing.T) {
	for _, row := range []struct {
		kept int64
		step time.Duration
	}{{keepMinutes, 5 * time.Minute}, {keepTenMinutes, 30 * time.Minute}, {keepHours, 12 * time.Hour},
		{keepHours, 24 * time.Hour}} {
		t.Run(row.step.String(), func(t *testing.T) {
			everyEngine(t, func(t *testing.T, w *world) {
				ctx := t.Context()
				r := rand.New(rand.NewPCG(3, 3))
				w.fleet.minutes = nil

				// An hour with counts in every minute.
				facts, begin := truth{}, minute(w.clock.now())
				for at := begin; at < begin+60; at++ {
					facts.count(at, r)
					w.must(w.Ledger().Record(ctx, "a", facts.minute(at)))
				}

				// The clock goes to 25 minutes before the step in which the counts begin is too
				// old to be asked for.
				step := int64(row.step / time.Minute)
				w.clock.pass(time.Duration(floorTo(begin, step)+row.kept+step-25-begin) * time.Minute)

				seen := 0
				for range 50 { // the counts are in the oldest step that can be asked for, and then in none
					w.clock.pass(time.Minute)

					from := w.clock.now().Add(-time.Duration(row.kept) * time.Minute)
					q := TrafficQuery{App: "a", From: from, To: from.Add(row.step), Step: row.step}
					span := must(q.span(w.clock.now()))

					want := facts.in(span)[""]
					check := func(when string, s *Service) {
						t.Helper()
						o, err := s.Overview(ctx, w.admin, q)
						if w.must(err); o.Traffic.Total != want || o.Apps[0].Counts != want {
							t.Errorf("%s, %+v: %v and %v %s, want %v", row.step, span, o.Traffic.Total,
								o.Apps[0].Counts, when, want)
						}
					}

					check("before", w.Service)
					for last, more := int64(0), true; more; more = last != 0 {
						// By a clock that is ahead.
						last = must(w.Ledger().Prune(ctx, w.clock.now().Add(time.Minute), last))
					}

					check("after", w.Service)
					check("anew", w.another())
					seen += int(want.Total())
				}

				if seen == 0 {
					t.Errorf("%s: no range had counts", row.step)
				}
			})
		})
	}
}
