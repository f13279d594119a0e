// This file has what an overview says of the moment, beside its range.

package service

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy/stats"
)

// Lately is what was decided in the newest span of which all counts have come.
type Lately struct {
	Span   time.Duration // 0 if nothing is known, because Redis does not answer
	Counts stats.Counts  // of the requests
}

// LatelyRefused is how long a policy counts as refusing after it has refused a request.
const LatelyRefused = 5 * time.Minute

// lately returns what was decided in the last whole ten seconds, or the last whole minute where
// these are not known.
func (r *reading) lately() (l Lately) {
	if r.late || len(r.apps) == 0 {
		return l
	}

	end := r.now.Add(-stats.TensLate).Truncate(stats.Ten)
	if c, known := r.tenAt(end.Add(-stats.Ten)); known {
		return Lately{stats.Ten, c}
	}
	for _, app := range r.apps {
		if n := len(r.window[app]); n > 1 {
			l.Span = time.Minute
			l.Counts.Add(r.window[app][n-2].Requests)
		}
	}
	return l
}

// tenAt returns the requests of the ten seconds that begin at an instant, and whether they are
// known.
func (r *reading) tenAt(at time.Time) (sum stats.Counts, known bool) {
	for _, app := range r.apps {
		minutes := r.window[app]
		i := slices.IndexFunc(minutes, func(m stats.Minute) bool { return m.Start.Equal(at.Truncate(time.Minute)) })
		if i < 0 || minutes[i].Tens == nil {
			return sum, false
		}
		sum.Add(minutes[i].Tens[at.Sub(minutes[i].Start)/stats.Ten])
	}
	return sum, true
}

// byTens returns a chart of minutes with steps of ten seconds, if these are known of each of the
// minutes. They are not where Redis has lost what the database has, nor where an instance of an
// earlier version counts. What is not of a ten counts for the first of its minute.
func (r *reading) byTens(t Traffic) Traffic {
	if r.late || t.Step != time.Minute || len(t.Points) > stats.Minutes {
		return t
	}

	fine := t
	fine.Step, fine.Points, fine.Total = stats.Ten, nil, stats.Counts{}
	for _, p := range t.Points {
		sum := stats.Counts{}
		for ten := range time.Duration(stats.Tens) {
			at := p.At.Add(ten * stats.Ten)
			c, known := r.tenAt(at)
			if !known {
				return t
			}
			fine.Points = append(fine.Points, Point{At: at, Counts: c})
			sum.Add(c)
		}

		// The database may have more than Redis, and Redis has what came since.
		for v, n := range p.Counts {
			if sum[v] < n {
				return t
			}
		}
		fine.Points[len(fine.Points)-stats.Tens].Lost = p.Lost
		fine.Total.Add(sum)
	}
	return fine
}

// refusing returns what the policies decided in the last minutes that refused requests in them,
// those that refused most first. The policies of each application are told apart.
func (r *reading) refusing() (list []*Sum) {
	last := int(LatelyRefused / time.Minute)
	for _, app := range r.apps {
		sums := map[string]*Sum{}
		minutes := r.window[app]
		for _, m := range minutes[max(0, len(minutes)-last):] {
			for name, c := range m.Policies {
				sum := sums[name]
				if sum == nil {
					sum = &Sum{App: app, Policy: name}
					sums[name] = sum
				}
				sum.Counts.Add(c)
			}
		}

		for name, sum := range sums {
			if refusedOf(sum.Counts) > 0 && isRuleName(name) {
				list = append(list, sum)
			}
		}
	}

	slices.SortFunc(list, func(a, b *Sum) int {
		return cmp.Or(cmp.Compare(refusedOf(b.Counts), refusedOf(a.Counts)),
			cmp.Compare(a.App, b.App), cmp.Compare(a.Policy, b.Policy))
	})
	return list
}

// before returns the requests of the range of the same length before the one of the reading.
func (r *reading) before() (c stats.Counts, err error) {
	earlier := *r
	long := r.span.to - r.span.from
	earlier.span.from, earlier.span.to = r.span.from-long, r.span.from

	// Those of all applications together have rows of their own.
	apps := r.apps
	if r.all {
		apps = []string{""}
	}
	for _, app := range apps {
		sum, err := earlier.total(app, store.RequestSeries)
		if err != nil {
			return c, err
		}
		c.Add(sum.Counts)
	}
	return c, nil
}
