package service

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// Seen is what a policy in shadow has seen of the requests of its applications.
type Seen struct {
	// Since is the instant from which on the counts are of the policy as it is now. It is zero
	// if the policy is not in shadow.
	Since time.Time

	// Counts are the decisions of the policy since then. The verdict ShadowRefused has the
	// requests over the limit, and those of callers whom the policy would refuse at once.
	Counts stats.Counts

	// Late reports whether the counts of the last two minutes may be missing.
	Late bool
}

// Over returns how many requests the policy would not have let through as they are.
func (s Seen) Over() int64 { return s.Counts[events.ShadowRefused] }

// maxSteps is the largest number of changes of a policy in shadow that are gone through, to
// find the one since which it decides as it does now.
const maxSteps = 50

// SeenInShadow returns what a policy has seen since it is in shadow as it is now. A change of
// its description, priority or applications leaves the counts as they are; any other change
// begins anew. Counts are kept by the minute, and after two days by the hour: if the policy
// was in force before, or decided otherwise, counting begins with the first whole one.
//
// The actor has to see the policy. The counts are those of its applications in which the
// actor has a role.
func (s *Service) SeenInShadow(ctx context.Context, a Actor, name string) (seen Seen, err error) {
	var p policy.Policy
	apps := func(d *action) (list []string, err error) {
		p, err = d.policy(name)
		return d.mine(p.Apps), err
	}
	err = s.withLive(ctx, a, "policy.read", policyObject(name), apps, func(r *reading) (err error) {
		if seen = (Seen{}); p.Mode == policy.Shadow {
			seen, err = r.inShadow(p)
		}
		return err
	})
	return seen, err
}

// mine returns the applications in which the actor has a role.
func (a *action) mine(apps []string) (list []string) {
	for _, app := range apps {
		if a.access.Role(app) != NoRole {
			list = append(list, app)
		}
	}
	return list
}

// inShadow adds up what a policy in shadow has seen.
func (r *reading) inShadow(p policy.Policy) (Seen, error) {
	start, err := r.startOf(p, decidesOtherwise)
	if err != nil {
		return Seen{}, err
	}

	from := start.minute(minute(r.now))
	seen := Seen{Since: atMinute(from), Late: r.late}
	// The first minute may have begun before the change, while the policy decided nothing.
	if seen.Since.Before(start.at) {
		seen.Since = start.at
	}

	// There is nothing to add up before the first whole minute.
	r.span = span{from: from, to: minute(r.now) + 1, step: 1, level: store.ByMinute, now: minute(r.now)}
	if r.span.from >= r.span.to {
		return seen, nil
	}

	for _, app := range r.apps {
		sum, err := r.total(app, p.Name)
		if err != nil {
			return seen, err
		}
		seen.Counts.Add(sum.Counts)
	}
	return seen, nil
}

// policyStart is the change since which a policy decides, or counts, as it does now.
type policyStart struct {
	at time.Time

	// before is when the policy began to decide nothing, if it did so until the change: the zero
	// time if there was no policy of the name. busy reports whether it decided something.
	before time.Time
	busy   bool
}

// startOf finds the change since which a policy does not differ from what it is now.
func (a *action) startOf(p policy.Policy, differs func(was, p policy.Policy) bool) (s policyStart, err error) {
	// Each revision is looked at with the one before it, from the newest on.
	rows, err := a.Revisions(p.Name, 0, maxSteps+1)
	if err != nil {
		return s, err
	}

	for i, row := range rows[:min(len(rows), maxSteps)] {
		s = policyStart{at: instant(row.At), busy: true}
		if i+1 < len(rows) {
			s.before = instant(rows[i+1].At)
		}

		if row.Before == "" { // it was created, or restored
			s.busy = false
			return s, nil
		}

		was, err := contentOf(row.Before)
		if err != nil {
			return s, err
		}

		if was.Mode == policy.Off {
			s.busy = false
			return s, nil
		}

		if differs(was, p) {
			return s, nil
		}
	}

	// After so many changes the oldest that was looked at will do.
	return s, nil
}

// decidesOtherwise reports whether two versions of a policy differ in more than what people
// read and where it applies.
func decidesOtherwise(a, b policy.Policy) bool {
	return slices.ContainsFunc(Diff(a, b), func(c Change) bool {
		return c.Field != "description" && c.Field != "priority" && c.Field != "apps"
	})
}

// minute returns the first minute whose counts are of the policy as it is now.
func (p policyStart) minute(now int64) int64 {
	at := minute(p.at)
	by := int64(store.ByMinute) // the finest rows that are still kept

	switch age := now - at; {
	case age >= keepTenMinutes-store.ByHour:
		by = store.ByHour
	case age >= keepMinutes-store.ByHour:
		by = store.ByTenMinutes
	}

	from := floorTo(at, by)
	// Counts of the first span may be of another content. Then the next whole span is the first.
	if p.busy || !p.before.IsZero() && minute(p.before) >= from {
		from = floorTo(minute(p.at.Add(time.Minute-1))+by-1, by)
	}

	return max(from, floorTo(now-keepHours+store.ByHour, store.ByHour))
}
