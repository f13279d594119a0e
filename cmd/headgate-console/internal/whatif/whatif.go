// Package whatif says how many requests a policy would have refused, as far as the counts of the
// busiest keys of each minute tell. The figures are bounds, and no estimates: wherever the requests
// of a minute lay in it, no fewer and no more of them would have been refused.
package whatif

import (
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/keylimit"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
)

// Bounds are how many of the requests of some minutes a policy would have refused.
type Bounds struct {
	Least, Most int64
	Callers     int64 // that it would have refused a request at least
}

// Refused returns how many of the requests in minutes a policy would have refused if it were in
// force. The first lead minutes only tell what was used before the others. In each minute there are
// the keys that were counted most often; see [stats.ReadMinuteKeys]. Overrides are those in force
// at an instant.
//
// A key that an override bans at that instant would have got nothing. Least does not count what a
// ban of the policy refuses. Most is all requests where a key may be banned since
// long before, or the clocks of instances differ. The policy has a cost that is a number, gives no
// units back, and has no requests wait. beside has all overrides beside it.
func Refused(
	p *policy.Policy, beside keylimit.Beside, minutes []topkeys.Summary, lead int, at time.Time,
) Bounds {
	f := figure{p: p, beside: beside, minutes: minutes, lead: lead, at: at, curves: map[core.Limit]*curve{},
		barred: barredFor(len(minutes))}
	var b Bounds

	// What is certain of each key adds up.
	for key, counts := range f.keys() {
		c, enforced, maybe := f.of(key)
		if n := c.leastRefused(counts.least[lead:]); n > 0 && enforced {
			b.Least += n
			b.Callers++
		}
		if n := c.mostRefused(counts.most, lead); n > 0 && maybe {
			b.Most += n
		}
	}
	b.Most += f.mostUnlisted()

	// Which of the counts of more than their minutes came first is not known.
	var all int64
	for _, m := range minutes[lead:] {
		all += m.Total
	}
	if b.Most = min(b.Most, all); f.slack() > 0 || p.Ban != (core.Ban{}) {
		b.Most = all
	}
	return b
}

// figure is what Refused finds out.
type figure struct {
	p       *policy.Policy
	beside  keylimit.Beside
	minutes []topkeys.Summary
	lead    int
	at      time.Time

	curves map[core.Limit]*curve // of the limits of single keys
	usual  *curve                // of a key without a limit of its own
	barred *curve                // of a key that is banned
	any    *curve                // of a key that is not known
}

// series are the counts of a key by the minute.
type series struct{ least, most []int64 }

// keys returns the counts of each key that is listed in some minute.
func (f *figure) keys() map[string]*series {
	keys := map[string]*series{}
	for i, m := range f.minutes {
		for _, k := range m.Keys {
			s := keys[k.Key]
			if s == nil {
				s = &series{least: make([]int64, len(f.minutes)), most: f.floors()}
				keys[k.Key] = s
			}

			s.least[i], s.most[i] = k.Least(), k.Count
		}
	}
	return keys
}

// floors returns how often a key that is listed in no minute was counted at most in each.
func (f *figure) floors() []int64 {
	list := make([]int64, len(f.minutes))
	for i, m := range f.minutes {
		list[i] = min(m.Floor, m.Total)
	}
	return list
}

// of returns the curve of a key, whether the policy is in force for it, and whether it may be.
func (f *figure) of(key string) (c *curve, enforced, maybe bool) {
	// The beginning of a long key says neither what limit it has nor on which side it is.
	if topkeys.Shorten(key) != key {
		return f.ofAny(), f.p.Enforce == 0, true
	}

	enforced = f.p.Enforce == 0 || f.p.Enforce.Has(f.p.Name, key)
	applied := f.beside.Apply(*f.p, key, f.at)
	if !applied.BanOf(key, f.at).IsZero() {
		return f.barred, enforced, enforced
	}
	if own, ok := applied.OverrideOf(key, f.at); ok {
		if f.curves[own.Limit] == nil {
			f.curves[own.Limit] = f.curve([]core.Limit{own.Limit})
		}
		return f.curves[own.Limit], enforced, enforced
	}
	if f.usual == nil {
		f.usual = f.curve(f.plans())
	}
	return f.usual, enforced, enforced
}

// plans returns the limits of callers with a plan, and of others. Who has which is not known.
func (f *figure) plans() []core.Limit {
	list := []core.Limit{f.p.Limit}
	for _, l := range f.p.Plans {
		list = append(list, l)
	}
	return list
}

// ofAny returns the curve of a key that is not known.
func (f *figure) ofAny() *curve {
	if f.any == nil {
		list, banned := f.plans(), false
		for _, o := range f.p.Overrides {
			if o.Limits(f.at) {
				list = append(list, o.Limit)
			}
			banned = banned || o.Bans(f.at)
		}
		// It is kept simple: a ban that the policy cannot have counts here too.
		for _, o := range f.beside {
			banned = banned || o.Bans(f.at)
		}

		f.any = f.curve(append(list, f.beside.Limits()...))
		if banned {
			f.any.need = f.barred.need
		}
	}
	return f.any
}

func (f *figure) curve(limits []core.Limit) *curve {
	return curveOf(limits, costOf(f.p), len(f.minutes), f.slack())
}

// slack returns how much longer a run of minutes may be than its minutes.
func (f *figure) slack() time.Duration {
	var most time.Duration
	for _, m := range f.minutes {
		most = max(most, m.To.Sub(m.From)-time.Minute)
	}
	return 2 * most // it begins in one that is too early, and ends in one that is too late
}

// mostUnlisted returns how many requests of keys that are not listed may have been refused.
func (f *figure) mostUnlisted() (n int64) {
	floors, c := f.floors(), f.ofAny()
	for i, m := range f.minutes {
		unlisted := m.Total
		for _, k := range m.Keys {
			unlisted -= k.Least()
		}
		if i >= f.lead && unlisted > 0 && c.mayRefuse(floors, i) {
			n += unlisted
		}
	}
	return n
}

// Tighter reports whether the limit of p admits fewer requests of a key in some time than that of
// q.
func Tighter(q, p *policy.Policy) bool {
	if q.Limit.Leased() || p.Limit.Leased() {
		return q.Limit != p.Limit
	}

	for _, span := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, 31 * 24 * time.Hour} {
		if p.Limit.MostWithin(costOf(p), span, 0) < q.Limit.MostWithin(costOf(q), span, 0) {
			return true
		}
	}
	return p.Limit.Capacity()/costOf(p) < q.Limit.Capacity()/costOf(q)
}

// costOf returns the cost of a request, if it is a number.
func costOf(p *policy.Policy) int64 { return max(1, p.Cost.Units) }
