// Package replay replays access logs through the limiter: who would have been refused, and which
// limit would have refused how many.
//
//	r, err := replay.NewReplay(replay.Options{Policies: set}, has)
//	if err != nil {
//		return err
//	}
//	for each entry of the log {
//		r.Add(entry)
//	}
//	report := r.Report()
//
// A [Replay] decides by the engine that serves requests, a limiter over a store in memory, whose
// clock is that of the log. So it decides as the limiter would have, at the resolution of the log's
// times. Its memory is bounded by the keys that are not fresh, and what it counts is bounded too.
package replay

import (
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/policy"
)

// Options configure a [Replay].
type Options struct {
	Policies policy.Set
	Against  policy.Set // the policies in force, to compare with; nil for none
	Compare  bool       // whether there is an Against, which may be empty

	App     string   // the application whose policies count; "" means all policies
	Proxies []string // addresses and networks whose X-Forwarded-For names the caller
	Users   bool     // the user of the log is that of the key "user"
	MaxKeys int      // of memstore.Options, for each set of policies

	// Lanes is on how many processors the log is replayed at most, where the policies permit it.
	// The report is the same.
	Lanes int
}

// Replay replays a log. It is not safe for concurrent use.
type Replay struct {
	now     int64 // of the log, in microseconds
	request request
	caller  core.KeyFunc

	main, against *side
	lanes         *lanes // which decide in the place of main and against, or nil

	requests, refused, waited int64
	callers, touched          distinct
	first                     int64
	when                      timeline // of refusals

	denied, allowed             int64 // requests that Against decides otherwise
	deniedCallers, letInCallers distinct
}

// NewReplay returns a replay of a log that has the fields. The error names every mistake of the
// options; policies that the log is not enough for are no mistake.
func NewReplay(o Options, has accesslog.Fields) (*Replay, error) {
	b, err := o.bindings()
	if err != nil {
		return nil, err
	}

	// Both sides have one clock, and count a caller by one key.
	r := &Replay{caller: b.IP}
	now := func() int64 { return r.now }
	if r.main, err = newSide(o.Policies, &o, has, now, b); err != nil {
		return nil, err
	}
	if o.Compare {
		if r.against, err = newSide(o.Against, &o, has, now, b); err != nil {
			return nil, err
		}
	}
	r.lanes, err = newLanes(&o, has)
	return r, err
}

// Add decides about the next entry of the log. Its time must not be before that of the last.
func (r *Replay) Add(e *accesslog.Entry) {
	r.now = e.At
	if r.first == 0 {
		r.first = e.At
	}
	if r.lanes != nil {
		r.lanes.add(e, r.first)
		return
	}

	r.request.set(e)
	key, _ := r.caller(&r.request)
	caller := hashOf(key)
	r.request.hash = caller

	r.requests++
	r.callers.add(caller)
	f := r.main.decide(&r.request)

	// The timeline has every request, so that it covers the whole log.
	n := int64(0)
	switch f {
	case waits:
		r.waited++
	case refused:
		n = 1
		r.refused++
		r.touched.add(caller)
	}
	r.when.add(e.At, n)

	// The policies in force see the same requests, and let others pass.
	if r.against == nil {
		return
	}

	switch before := r.against.decide(&r.request); {
	case f == refused && before != refused:
		r.denied++
		r.deniedCallers.add(caller)
	case f != refused && before == refused:
		r.allowed++
		r.letInCallers.add(caller)
	}
}

// Report is what would have become of the requests of a log.
type Report struct {
	Requests int64     `json:"requests"`
	Callers  int64     `json:"callers"`
	First    time.Time `json:"first,omitzero"`
	Last     time.Time `json:"last,omitzero"`

	Refused        int64 `json:"refused"`
	RefusedCallers int64 `json:"refused_callers"`
	Waited         int64 `json:"waited"`
	Estimated      bool  `json:"estimated"` // numbers of callers are those of a sample

	Policies []PolicyReport `json:"policies"`
	LeftOut  []LeftOut      `json:"left_out"`
	Top      []Touched      `json:"top"`
	Refusals Timeline       `json:"refusals"`
	Against  *Comparison    `json:"against,omitempty"`

	// SharedKeys is how many requests of new keys shared limits, because MaxKeys were in use.
	SharedKeys int64 `json:"shared_keys"`

	// Undecided is how many requests passed because some policy could not decide about them.
	Undecided int64 `json:"undecided"`
}

// PolicyReport is what one policy would have done.
type PolicyReport struct {
	Policy   string    `json:"policy"`
	Limit    string    `json:"limit"`
	Mode     string    `json:"mode"`
	Requests int64     `json:"requests"` // that it applies to
	Callers  int64     `json:"callers"`  // by its own key
	Over     int64     `json:"over"`     // requests over the limit, or of callers who are denied or banned
	Touched  int64     `json:"touched"`  // callers of these
	Refused  int64     `json:"refused"`
	Waited   int64     `json:"waited"` // would have waited for their turn
	Banned   int64     `json:"banned"` // refused because of a ban
	Denied   int64     `json:"denied"` // refused because of a list
	First    time.Time `json:"first,omitzero"`
	Last     time.Time `json:"last,omitzero"`

	// CostNeeds is what says what a request costs and no log has, or "". The default or the
	// estimate of the policy is charged instead.
	CostNeeds string `json:"cost_needs,omitempty"`
}

// Touched is a caller, by the key of a policy, and how many requests were over the limit.
type Touched struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	Times  int64  `json:"times"`
}

// Timeline is counts over time.
type Timeline struct {
	Start  time.Time     `json:"start,omitzero"`
	Step   time.Duration `json:"step_ns"`
	Counts []int64       `json:"counts"`
}

// Comparison is how the policies decide otherwise than those in force.
type Comparison struct {
	Refused       int64     `json:"refused"` // by the policies in force
	AllowToDeny   int64     `json:"allow_to_deny"`
	DeniedCallers int64     `json:"allow_to_deny_callers"`
	DenyToAllow   int64     `json:"deny_to_allow"`
	LetInCallers  int64     `json:"deny_to_allow_callers"`
	LeftOut       []LeftOut `json:"left_out"`
}

// topCallers is how many callers a report names.
const topCallers = 10

// Report returns what was found so far.
func (r *Replay) Report() *Report {
	if r.lanes != nil && r.first != 0 {
		return r.lanes.end(r.first, r.now).Report()
	}
	rep := &Report{Requests: r.requests, Callers: r.callers.count(), First: timeOf(r.first), Last: timeOf(r.now),
		Refused: r.refused, RefusedCallers: r.touched.count(), Waited: r.waited, Estimated: r.callers.level > 0,
		Policies: []PolicyReport{}, LeftOut: append([]LeftOut{}, r.main.leftOut...),
		Top: r.main.top.first(topCallers), Refusals: r.when.report(), SharedKeys: r.main.sharedKeys(),
		Undecided: r.main.undecided}

	for _, t := range r.main.order {
		rep.Policies = append(rep.Policies, PolicyReport{Policy: t.policy.Name, Limit: t.policy.Limit.String(),
			Mode: t.policy.Mode.String(), Requests: t.applied, Callers: t.callers.count(), Over: t.over,
			Touched: t.touched.count(), Refused: t.refused, Waited: t.waited, Banned: t.banned, Denied: t.denied,
			First: timeOf(t.first), Last: timeOf(t.last), CostNeeds: costNeeds(&t.policy.Cost)})
	}

	// Refusals of the policies in force are those that both refuse, and those that these let in.
	if a := r.against; a != nil {
		rep.Against = &Comparison{Refused: r.refused - r.denied + r.allowed,
			AllowToDeny: r.denied, DeniedCallers: r.deniedCallers.count(),
			DenyToAllow: r.allowed, LetInCallers: r.letInCallers.count(), LeftOut: append([]LeftOut{}, a.leftOut...)}
	}

	return rep
}
