// This file reads what the instances of an application report, and how it goes on.

package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy/stats"
)

const (
	// looked is over how long the rates of a live table are, and least the shortest time that
	// shows one.
	looked = 10 * time.Second
	least  = 3 * time.Second

	// keysEvery is the time between two looks at the keys, which instances do not publish more
	// often.
	keysEvery = 5 * time.Second
)

// course is what the instances of an application have reported, at the looks of the last seconds.
type course struct {
	app   string
	now   time.Time // of the latest look, by the server's clock
	marks []mark    // the oldest first

	top   stats.Top
	topAt time.Time
}

// mark is a look: the counts of a minute and of the one before.
type mark struct {
	at      time.Time
	minutes []stats.Minute
}

// farFuture is an instant since which no count has changed.
var farFuture = time.Unix(1<<40, 0)

// reports reports whether an instance of the application has reported within a day.
func reports(ctx context.Context, client redis.UniversalClient, prefix, app string) (bool, error) {
	minutes, _, err := stats.Changed(ctx, client, prefix, app, time.Unix(0, 0))
	return len(minutes) > 0, err
}

// read looks at the counts, and at the keys if it is time.
func (c *course) read(ctx context.Context, client redis.UniversalClient, prefix string) error {
	_, now, err := stats.Changed(ctx, client, prefix, c.app, farFuture)
	if err != nil {
		return err
	}
	minute := now.Truncate(time.Minute)
	minutes, err := stats.ReadMinutes(ctx, client, prefix, c.app, []time.Time{minute.Add(-time.Minute), minute})
	if err != nil {
		return err
	}

	// Of the looks that are too long ago, one stays as the beginning of the span. After a pause
	// the minutes in between are not known.
	if now.Sub(c.now) > looked {
		c.marks = nil
	}
	c.now = now
	c.marks = append(c.marks, mark{now, minutes})
	for len(c.marks) > 2 && now.Sub(c.marks[1].at) >= looked {
		c.marks = c.marks[1:]
	}

	if now.Sub(c.topAt) < keysEvery {
		return nil
	}
	c.topAt = now
	c.top, err = stats.ReadTop(ctx, client, prefix, c.app)
	return err
}

// appCounts is what an application has had in a span.
type appCounts struct {
	App string `json:"app"`

	// Seconds is the span that the counts are of, and Reported when an instance reported last,
	// nil if none has in this minute and the one before.
	Seconds  float64    `json:"seconds"`
	Reported *time.Time `json:"reported"`

	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"`
	Lost     int64 `json:"lost"` // requests that came while Redis was away

	Policies []policyCounts `json:"policies"`

	// Keys has the keys that policies refuse most, of so many Instances that publish theirs.
	Keys      []policyKeys `json:"keys"`
	Instances int          `json:"instances"`

	span, late, keySpan, keyLate time.Duration

	whole bool     // the span is this minute and the one before
	names []string // of all policies that are counted
}

// policyCounts are the decisions of a policy in the span.
type policyCounts struct {
	Policy   string `json:"policy"` // "" for those that instances do not tell apart
	Requests int64  `json:"requests"`
	Refused  int64  `json:"refused"`
}

// policyKeys are the keys that a policy refuses most. They are of the last minutes.
type policyKeys struct {
	Policy  string          `json:"policy"`
	Refused topkeys.Summary `json:"refused"`
}

// counts returns what the looks show, of one policy unless the name is "".
func (c *course) counts(only string) appCounts {
	first, last := c.marks[0], c.marks[len(c.marks)-1]
	a := appCounts{App: c.app, Policies: []policyCounts{}, Keys: []policyKeys{}, Instances: c.top.Instances}
	for _, m := range last.minutes {
		if m.Changed.IsZero() {
			continue
		}
		at := m.Changed
		a.Reported, a.late = &at, max(0, c.now.Sub(at))
	}

	// The first looks are too close to each other.
	if a.span = last.at.Sub(first.at); a.span < least {
		first = mark{}
		a.whole, a.span = true, last.at.Sub(last.minutes[0].Start)
	}
	a.Seconds = a.span.Seconds()

	policies := map[string]stats.Counts{}
	for _, m := range last.minutes {
		before := first.of(m.Start)
		requests := less(m.Requests, before.Requests)
		a.Requests, a.Refused = a.Requests+requests.Total(), a.Refused+refusals(requests)
		a.Lost += max(0, m.Lost-before.Lost)
		for name, n := range m.Policies {
			sum := policies[name]
			sum.Add(less(n, before.Policies[name]))
			policies[name] = sum
		}
	}
	a.addPolicies(policies, only)
	c.addKeys(&a, only)
	return a
}

// of returns the counts of a minute at the look. Those of one that had not begun are zero.
func (m *mark) of(start time.Time) stats.Minute {
	i := slices.IndexFunc(m.minutes, func(x stats.Minute) bool { return x.Start.Equal(start) })
	if i < 0 {
		return stats.Minute{}
	}
	return m.minutes[i]
}

// less returns what was counted in between. A server that was emptied begins anew.
func less(after, before stats.Counts) (n stats.Counts) {
	for i := range n {
		n[i] = max(0, after[i]-before[i])
	}
	return n
}

// refusals returns how many were refused.
func refusals(c stats.Counts) (n int64) {
	for _, v := range []events.Verdict{
		events.Refused, events.Banned, events.Denied, events.Impossible, events.QueueFull,
	} {
		n += c[v]
	}
	return n
}

// addPolicies adds the policies, those that refuse most first.
func (a *appCounts) addPolicies(policies map[string]stats.Counts, only string) {
	for name, n := range policies {
		a.names = append(a.names, name)
		if only == "" || name == only {
			a.Policies = append(a.Policies, policyCounts{name, n.Total(), refusals(n)})
		}
	}
	slices.SortFunc(a.Policies, func(x, y policyCounts) int {
		return cmp.Or(cmp.Compare(y.Refused, x.Refused), cmp.Compare(y.Requests, x.Requests),
			cmp.Compare(x.Policy, y.Policy))
	})
}

// addKeys adds the keys.
func (c *course) addKeys(a *appCounts, only string) {
	for _, r := range c.top.Rules {
		if only != "" && r.Rule != only || len(r.Refused.Keys) == 0 {
			continue
		}
		a.Keys = append(a.Keys, policyKeys{r.Rule, r.Refused})
		a.keySpan = max(a.keySpan, r.Refused.To.Sub(r.Refused.From))
		a.keyLate = max(a.keyLate, c.now.Sub(r.Refused.To))
	}
}
