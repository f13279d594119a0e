package service

import (
	"cmp"
	"context"
	"slices"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// Overview is what happened in a range: over time, by application and by policy.
type Overview struct {
	Traffic Traffic      // of the requests
	Before  stats.Counts // the requests of the range of the same length before
	Lately  Lately       // the requests of the moment

	// Refusing has the policies that refused requests in the last five minutes, with their
	// decisions in these, those that refused most first. It is empty if Redis does not answer.
	Refusing []*Sum

	// Apps has the requests of each application, the busiest first.
	Apps []Sum

	// Policies has the decisions of each policy of each application, those that refused
	// most first. It is empty if TooMany.
	Policies []Sum

	// TooMany reports whether the applications have too many policies to add up at once.
	// An overview of one application has all of its policies.
	TooMany bool

	// Changes are the changes of policies in the range, the newest first. MoreChanges
	// reports whether there may be older ones.
	Changes     []Marker
	MoreChanges bool
}

const (
	maxSummed  = 1000 // series of several applications that are added up for an overview
	maxChanges = 100  // that an overview looks at
)

// Overview returns what happened in a range. The actor needs a role in the application; without
// one the overview is of all applications in which the actor has a role. q.Policy is ignored.
func (s *Service) Overview(ctx context.Context, a Actor, q TrafficQuery) (o Overview, err error) {
	q.Policy = ""
	err = s.readTraffic(ctx, a, q, func(r *reading) (err error) {
		o = Overview{}
		if o.Traffic, err = r.chart(store.RequestSeries); err != nil {
			return err
		}

		if q.Fine {
			o.Traffic = r.byTens(o.Traffic)
		}

		if o.Before, err = r.before(); err != nil {
			return err
		}
		o.Lately, o.Refusing = r.lately(), r.refusing()

		if !q.NoSums {
			if err := o.addUp(r); err != nil {
				return err
			}
		}

		// The chart has widened the range to whole steps, and the changes are those in it.
		q.From, q.To = o.Traffic.From, o.Traffic.To
		o.Changes, o.MoreChanges, err = r.markers(q, maxChanges, true)
		return err
	})
	return o, err
}

// addUp adds up the requests by application, and the decisions by policy.
func (o *Overview) addUp(r *reading) error {
	n, err := r.SeriesCount(r.apps)
	if err != nil {
		return err
	}

	// If there are too many series, only those of the requests are added up.
	o.TooMany = len(r.apps) > 1 && n > maxSummed

	for _, app := range r.apps {
		sum := Sum{App: app}
		if o.TooMany {
			if sum, err = r.total(app, store.RequestSeries); err != nil {
				return err
			}
			o.Apps = append(o.Apps, sum)
			continue
		}

		sums, err := r.sums(app)
		if err != nil {
			return err
		}
		for name, s := range sums {
			if name == store.RequestSeries {
				sum = s
				continue
			}
			o.Policies = append(o.Policies, s)
		}
		o.Apps = append(o.Apps, sum)
	}

	slices.SortStableFunc(o.Apps, func(a, b Sum) int { return cmp.Compare(b.Counts.Total(), a.Counts.Total()) })
	slices.SortFunc(o.Policies, func(a, b Sum) int {
		return cmp.Or(cmp.Compare(b.refused(), a.refused()), cmp.Compare(b.Counts.Total(), a.Counts.Total()),
			cmp.Compare(a.App, b.App), cmp.Compare(a.Policy, b.Policy))
	})

	return nil
}

// refused returns how many were not let through.
func (s *Sum) refused() (n int64) {
	for v, c := range s.Counts {
		if !events.Verdict(v).Passes() {
			n += c
		}
	}
	return n
}
