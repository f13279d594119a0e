// This file has what a policy would have refused, before it is saved.

package service

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/keylimit"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/cmd/headgate-console/internal/whatif"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// WouldRefuse is what a changed policy would have refused of the requests of the last minutes.
type WouldRefuse struct {
	// Unknown says why nothing can be told; "" if something can.
	Unknown string `json:"unknown,omitempty"`

	// Minutes is how many of the last minutes it is about, and Requests how many requests the
	// policy decided in them, of which it refused Before.
	Minutes  int   `json:"minutes"`
	Requests int64 `json:"requests"`
	Before   int64 `json:"before"`

	// Least and Most bound how many the changed policy would have refused, and Callers how many
	// callers it would have refused a request at least.
	Least   int64 `json:"least"`
	Most    int64 `json:"most"`
	Callers int64 `json:"callers"`

	degrades bool // they would have got a cheaper answer
}

const (
	whatifMinutes = 60
	whatifLead    = 5 // minutes before those, which tell what was used when they began

	// edges is the part of the requests by which the counts of a policy and those of its keys may
	// differ because they are written at other times: one in so many.
	edges = 200

	// maxLimits bounds the different limits of single keys that are reckoned with.
	maxLimits = 1000
)

// WouldRefuse returns what the policy p would have refused of the requests of the last hour, in the
// place of the saved policy of its name. It returns nil if p refuses no more than that, or there is
// no such policy that the actor sees. The counts are those of the applications in which the actor
// has a role.
func (s *Service) WouldRefuse(ctx context.Context, a Actor, p policy.Policy) (w *WouldRefuse, err error) {
	r := &whatIf{reading: reading{s: s, ctx: ctx}, p: p}
	err = s.ask(ctx, a, "policy.read", policyObject(p.Name), r.read)
	if err != nil || r.q.Name == "" || !refusesMore(&r.q, &p) && !r.unfits() {
		return nil, err
	}
	if why := uncounted(&r.q, &p); why != "" {
		return &WouldRefuse{Unknown: why}, nil
	}
	if len(r.beside.Limits()) > maxLimits {
		return &WouldRefuse{Unknown: "single keys have more than 1,000 different limits beside it"}, nil
	}
	if s.fleet == nil {
		return &WouldRefuse{Unknown: "the console was started without Redis"}, nil
	}

	// Redis is asked between two transactions, and the second one looks at the permission again.
	r.now = s.clock().UTC()
	r.readLive()
	r.end = minute(r.now.Add(-stats.MinuteKeysLate))
	r.keys = map[string][]topkeys.Summary{}
	for _, app := range r.apps {
		r.keys[app], err = s.fleet.MinuteKeys(ctx, app, p.Name, atMinute(r.end-whatifMinutes-whatifLead),
			whatifMinutes+whatifLead)
		if err != nil || r.late {
			return &WouldRefuse{Unknown: "Redis does not answer"}, nil
		}
	}

	err = s.ask(ctx, a, "policy.read", policyObject(p.Name), func(d *action) error {
		if err := r.read(d); err != nil || r.q.Name == "" {
			return err
		}
		w, err = r.answer()
		return err
	})
	return w, err
}

// whatIf reads what the policy p would have refused in the place of q.
type whatIf struct {
	reading
	q, p policy.Policy // q is zero if there is none that the actor sees
	keys map[string][]topkeys.Summary

	beside keylimit.Beside // all overrides beside q
	since  time.Time       // of the last of their changes and ends

	first int64 // the first minute whose keys count
	from  int64 // and the first whose requests do
	end   int64
}

// read reads the saved policy.
func (w *whatIf) read(d *action) error {
	w.action = d
	q, err := d.anyPolicy(w.p.Name)
	if errors.Is(err, ErrNotFound) || err == nil && !d.access.CanSee(q.Apps) {
		w.q = policy.Policy{}
		return nil
	}
	w.q, w.apps = q, d.mine(q.Apps)
	return w.readBeside()
}

// readBeside reads the overrides beside the saved policy.
func (w *whatIf) readBeside() error {
	rows, err := w.action.Tx.Overrides(w.q.Name, "", "", policy.MaxOverridesBeside+1)
	if err != nil {
		return err
	}
	w.beside = besideOf(rows)

	// The audit log also has those that were taken away.
	for _, verbs := range []string{"override.", "ban."} {
		list, err := w.FindAudit(store.AuditQuery{Object: policyObject(w.q.Name), Action: verbs,
			Outcome: Done, Limit: 1})
		if err != nil {
			return err
		}
		for _, row := range list {
			w.sinceAtLeast(row.At)
		}
	}

	// A limit may outlast the ban that came before it.
	for _, o := range w.beside {
		for _, end := range []time.Time{o.Until, o.BannedUntil} {
			if !end.After(instant(w.action.now)) {
				w.sinceAtLeast(end)
			}
		}
	}
	return nil
}

func (w *whatIf) sinceAtLeast(at time.Time) {
	if at.After(w.since) {
		w.since = at
	}
}

// unfits reports whether p cannot have an override that q has beside it, so that its keys come
// under the limit of p.
func (w *whatIf) unfits() bool {
	if w.p.Mode != policy.Enforce || !changes(&w.q, &w.p, "limit", "cost", "key") {
		return false
	}
	for key, o := range w.beside {
		if w.p.CheckOverride(key, o) != nil && w.q.CheckOverride(key, o) == nil {
			return true
		}
	}
	return false
}

// answer says what p would have refused, or nil if no more than q.
func (w *whatIf) answer() (*WouldRefuse, error) {
	// Where only the share that the policy is in force for grows, the requests over its limit have
	// been counted.
	alike := decideAlike(w.q, w.p)
	differs := countOtherwise
	if alike {
		differs = func(a, b policy.Policy) bool { return !decideAlike(a, b) }
	}
	start, err := w.startOf(w.q, differs)
	if err != nil {
		return nil, err
	}

	// Overrides beside the policy count as they are now, and what they have let through as they
	// were then.
	if alike && w.since.After(start.at) {
		start.at = w.since
	}

	// A change comes into force within seconds. After it fewer minutes are known.
	w.first = max(w.end-whatifMinutes-whatifLead, minute(start.at.Add(10*time.Second))+1)
	w.from = w.first + min(whatifLead, max(0, w.end-w.first)/4)
	if w.from >= w.end {
		return &WouldRefuse{Unknown: "until a few minutes ago its requests were counted in another way"}, nil
	}
	answer := &WouldRefuse{Minutes: int(w.end - w.from), degrades: w.p.OnLimit == "degrade"}
	listed := w.addBounds(answer)
	over, err := w.addCounts(answer)
	if err != nil {
		return nil, err
	}

	w.complete(answer, listed, over, alike)
	answer.Most = max(answer.Least, min(answer.Most, answer.Requests))
	if w.q.Mode == policy.Enforce && w.q.Enforce == 0 && answer.Unknown == "" && answer.Most <= answer.Before {
		return nil, nil
	}
	return answer, nil
}

// complete takes into account which requests are not among the keys that are listed, and how many
// were over the limit that is in force.
func (w *whatIf) complete(answer *WouldRefuse, listed, over int64, alike bool) {
	switch {
	case answer.Requests == 0:
		answer.Unknown = "it has counted no request"
	case alike && w.p.Enforce == 0 && w.p.Ban == (core.Ban{}):
		answer.Least, answer.Most = over, over
	case listed == 0:
		answer.Unknown = "instances record no keys: Top of their limiters, or top-keys of the gateway, is 0"
	case len(w.apps) < len(w.q.Apps), denies(&w.p):
		answer.Most = answer.Requests
	case answer.Requests-listed > answer.Requests/edges+2:
		answer.Most += answer.Requests - listed
	}
	if alike && w.p.Ban == (core.Ban{}) {
		answer.Most = min(answer.Most, over)
	}
	if answer.Unknown == "" && answer.Least == 0 && answer.Most >= answer.Requests {
		answer.Unknown = "the keys that are recorded leave it open"
	}
}

// addBounds adds the bounds by the keys, and returns how many requests these had.
func (w *whatIf) addBounds(answer *WouldRefuse) (listed int64) {
	// Instances of one application count together. Whether those of several do depends on their
	// stores: if they do, more may be refused, and if not, fewer.
	lists := make([][]topkeys.Summary, w.end-w.first)
	lead := int(w.from - w.first)
	for _, app := range w.apps {
		minutes := w.keys[app][w.first-(w.end-whatifMinutes-whatifLead):]
		b := whatif.Refused(&w.p, w.beside, minutes, lead, w.now)
		answer.Least += b.Least
		answer.Callers = max(answer.Callers, b.Callers)
		for i, m := range minutes {
			lists[i] = append(lists[i], m)
			if i >= lead {
				listed += m.Total
			}
		}
	}

	merged := make([]topkeys.Summary, len(lists))
	for i, list := range lists {
		merged[i] = topkeys.Merge(math.MaxInt, list...)
	}
	answer.Most = whatif.Refused(&w.p, w.beside, merged, lead, w.now).Most
	return listed
}

// addCounts adds what the policy has decided, and returns how many requests were over its limit.
func (w *whatIf) addCounts(answer *WouldRefuse) (over int64, err error) {
	w.span = span{from: w.from, to: w.end, step: 1, level: store.ByMinute, now: minute(w.now)}
	for _, app := range w.apps {
		sum, err := w.total(app, w.q.Name)
		if err != nil {
			return 0, err
		}
		c := sum.Counts
		answer.Before += refusedOf(c) + c[events.Degraded]
		over += c[events.ShadowRefused]
		answer.Requests += c[events.Allowed] + c[events.Waited]
	}
	over += answer.Before
	answer.Requests += over
	return over, nil
}

// Sentence says what the policy would have refused, or that it is not known.
func (w *WouldRefuse) Sentence() string {
	if w.Unknown != "" {
		return "What it would have refused in the last hour is not known: " + w.Unknown + "."
	}

	// The bounds are said as far as they tell something.
	what := "It would have refused "
	if w.degrades {
		what = "It would have given a cheaper answer to "
	}
	switch least, most := Digits(w.Least), Digits(w.Most); {
	case w.Most == 0:
		what += "none"
	case w.Least == w.Most:
		what += least
	case w.Most == w.Requests:
		what += "at least " + least
	case w.Least == 0:
		what += "at most " + most
	default:
		what += "between " + least + " and " + most
	}

	// A policy that is younger than an hour has fewer minutes.
	span := "hour"
	if w.Minutes != whatifMinutes {
		span = plural(int64(w.Minutes), "minute")
	}
	what += " of " + plural(w.Requests, "request") + " of the last " + span
	if w.Callers > 0 {
		what += ", at least " + plural(w.Callers, "caller")
	}
	if w.Before > 0 {
		what += ". So far it has refused " + Digits(w.Before)
	}
	return what + "."
}

// plural returns a number of things.
func plural(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return Digits(n) + " " + thing
}

// changes reports whether one of the fields differs.
func changes(a, b *policy.Policy, fields ...string) bool {
	return slices.ContainsFunc(Diff(*a, *b), func(c Change) bool { return slices.Contains(fields, c.Field) })
}

// decideAlike reports whether two policies decide alike about each request, for those whom they are
// in force for.
func decideAlike(a, b policy.Policy) bool {
	return a.Mode != policy.Off && b.Mode != policy.Off && !changes(&a, &b, append(slices.Clone(countedFields),
		"limit", "cost", "refund", "count_only", "plans", "plan_by", "overrides", "on_limit", "ban")...)
}

// countedFields are the fields that say which requests are counted, and by which keys.
var countedFields = []string{"apps", "key", "match.methods", "match.host", "match.path", "match.except",
	"match.headers", "access"}

// countOtherwise reports whether two policies count different requests, or by different keys.
func countOtherwise(was, p policy.Policy) bool {
	return was.Mode == policy.Off || waits(&was) || changes(&was, &p, countedFields...)
}

func waits(p *policy.Policy) bool { return strings.HasPrefix(p.OnLimit, "wait") }

func denies(p *policy.Policy) bool { return !p.Access.Deny.IsZero() || p.Access.DenyOthers }

// refusesMore reports whether p may refuse a request that q does not.
func refusesMore(q, p *policy.Policy) bool {
	part := func(p *policy.Policy) core.Share { return cmp.Or(p.Enforce, core.Whole) }
	switch {
	case p.Mode == policy.Off, p.Mode == policy.Shadow && q.Mode == policy.Enforce:
		return false
	case p.Mode < q.Mode, p.Mode == q.Mode && part(p) > part(q):
		return true
	}
	return changes(q, p, append(slices.Clone(countedFields), "plans", "overrides")...) ||
		p.Ban != (core.Ban{}) && p.Ban != q.Ban || whatif.Tighter(q, p)
}

// uncounted says why the counts of q do not tell what p would have refused, or "".
func uncounted(q, p *policy.Policy) string {
	// The first reason is enough, the plainest first.
	switch {
	case q.Mode == policy.Off:
		return "it is off, so no request was counted"
	case changes(q, p, "key"):
		return "requests were counted by another key"
	case changes(q, p, "access"):
		return "other callers are let in or refused at once than those that were counted"
	case changes(q, p, countedFields...):
		return "other requests were counted"
	case waits(q) || waits(p):
		return "requests over the limit wait, and the counts do not tell how long"
	case p.Limit.Leased():
		return "the counts do not tell how long requests take"
	case len(p.Refund)+len(p.CountOnly) > 0:
		return "answers give requests back, and the counts do not tell of which callers"
	case p.Cost.Units == 0 && !p.Cost.IsOne():
		return "the counts do not tell what requests cost"
	}
	return ""
}
