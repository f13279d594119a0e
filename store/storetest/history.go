package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
)

// families returns the limits that histories draw from. A rule of a history
// belongs to one family, and so do the limits that it changes to.
func families() [][]core.Limit { return slices.Clone(parsedFamilies()) }

// parsedFamilies parses the limits once, which takes longer than a short history.
var parsedFamilies = sync.OnceValue(func() [][]core.Limit {
	return append([][]core.Limit{
		limits("1/1ms", "7/1s", "7/1s debt=3", "60/1s", "3/7s burst=5", "3/5s burst=5", "61/1s burst=60"),
		limits("999983/24h", "123457/720h", "123457/720h burst=11", "999983/24h burst=1000",
			"1000000000/1s", "1000000000/1s burst=999"),
		limits("240/1h", "5/1m", "5/1m burst=1", "1/1m burst=7", "7/1m burst=3"),
		limits("2/3s fixed-window", "5/3s fixed-window", "5/3s fixed-window debt=2", "5/7s fixed-window aligned",
			"1/1ms fixed-window", "1000000007/24h fixed-window"),
		limits("5/1m fixed-window aligned", "7/1m fixed-window aligned", "4/1h fixed-window",
			"3/7ms fixed-window aligned"),
		limits("1/1s sliding-log", "5/7s sliding-log", "8/3s sliding-log", "1/1ms sliding-log", "37/1h sliding-log"),
		limits("4/4s sliding-window segments=4", "10/10s sliding-window", "4/4s sliding-window segments=4 debt=9",
			"7/3s sliding-window segments=3", "9/4s sliding-window segments=8"),
		limits("240/1h sliding-window segments=60", "7/1h sliding-window segments=360",
			"999983/24h sliding-window", "3/1ms sliding-window"),
		limits("4/10s token-bucket burst=9", "1/100ms token-bucket burst=10", "4/10s token-bucket burst=9 debt=1",
			"7/1s token-bucket burst=3", "13/11s token-bucket"),
		limits("999983/24h token-bucket burst=123457", "1/1ms token-bucket", "3/1h token-bucket burst=17",
			"1000000007/1s token-bucket"),
		limits("2 concurrent ttl=3s", "5 concurrent ttl=30s", "1 concurrent ttl=1ms", "9 concurrent ttl=7s"),
	}, calendars()...)
})

// A history makes up the steps of one history, one by one, because the next
// instant often is one that the decisions so far have named.
//
// A store forgets a key that a step changes and leaves fresh, and may forget a key
// that has become fresh by itself. This shows when the clock steps back: a forgotten
// key stays forgotten, and a step pulls a key that it meets back to the new instant.
// So a step back retires the keys that may have been forgotten, and peeks at all
// others. A change of the limit retires such keys too.
type history struct {
	r       *rand.Rand
	lends   *rand.Rand // draws credits, so that the rest of a history does not depend on them
	forward bool       // the clock never steps back
	fixed   bool       // limits never change
	at      time.Duration
	back    bool          // the clock has stepped back at the last step
	high    time.Duration // the latest instant since the clock stepped back
	rules   []ruleOfHistory
	resets  map[subject]reset // of keys that are in use
	struck  map[subject]bool  // keys that may have strikes or a ban
	lent    map[subject]bool  // keys that may have credit
	names   map[subject]int   // how many keys of that name are retired
	named   []time.Duration   // instants since Epoch
	freed   []subject         // keys that a refund of the last step made new
	labels  []call            // takes that a refund may undo
	last    step
	count   int
}

// reset is when a key may be fresh, or an earlier instant. The limit is the one under
// which it was last written, by which a store knows when to forget it, or the zero
// limit if that is not certain.
type reset struct {
	at    time.Duration
	limit core.Limit
}

// subject is a rule and the name of a key, less the number that distinguishes
// it from retired keys.
type subject struct{ rule, key string }

type ruleOfHistory struct {
	name   string
	family []core.Limit
	limit  core.Limit
	ban    *core.Ban
	grants int // in how many of a hundred calls a key is granted units, or loses them
}

// bansOf returns the bans that a rule of the family may have. Their spans are some of its
// limits' own, so that the instants of bans and of units meet.
func bansOf(family []core.Limit) []*core.Ban {
	if family[0].Leased() {
		return []*core.Ban{nil}
	}
	short := min(max(family[0].Period, time.Millisecond), core.MaxPeriod/8)
	return []*core.Ban{nil, nil,
		{Strikes: 1, Within: time.Second, For: 3 * time.Second, Max: time.Minute},
		{Strikes: 2, Within: short, For: short, Max: 4 * short},
		{Strikes: 3, Within: 2 * short, For: 3 * short, Max: 8 * short},
		{Strikes: 2, Within: 2 * short, For: short, Max: short},
	}
}

// newHistory starts history number n of the seed.
func newHistory(families [][]core.Limit, seed, n uint64) *history {
	h := &history{r: rand.New(rand.NewPCG(seed, n)), lends: rand.New(rand.NewPCG(seed+1<<32, n)),
		resets: map[subject]reset{}, struck: map[subject]bool{}, lent: map[subject]bool{}, names: map[subject]int{}}
	h.at = time.Duration(h.r.Int64N(int64(48*time.Hour/time.Microsecond))) * time.Microsecond
	for i := range 1 + h.r.IntN(4) {
		family := families[h.r.IntN(len(families))]
		h.rules = append(h.rules,
			ruleOfHistory{fmt.Sprintf("r%d", i), family, pick(h.r, family), pick(h.r, bansOf(family)), 0})
		if !family[0].Leased() {
			h.rules[i].grants = pick(h.lends, []int{0, 0, 0, 10, 25, 60})
		}
	}

	// Most windows of a calendar end far away from a random instant.
	if h.byCalendar() && h.r.IntN(4) > 0 {
		h.at = max(0, h.turn())
	}
	return h
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// keys returns the names of keys.
func (h *history) keys() []string { return []string{"a", "b"} }

// key returns the key that has the name now.
func (h *history) key(s subject) string {
	if n := h.names[s]; n > 0 {
		return fmt.Sprintf("%s%d", s.key, n)
	}
	return s.key
}

// next makes up the next step.
func (h *history) next() step {
	before := h.at
	h.at = h.instant()
	var live []subject
	if h.back = h.at < before; h.back {
		live = h.retire()
	}
	h.high = max(h.high, h.at)

	// A rule is edited now and then, and keeps its ban as often as not.
	if h.r.IntN(8) == 0 && !h.fixed {
		rule := &h.rules[h.r.IntN(len(h.rules))]
		rule.limit = pick(h.r, rule.family)
		rule.ban = pick(h.r, append(bansOf(rule.family), rule.ban, rule.ban))
	}
	h.retireChanged()

	s := step{at: h.at}
	for range pick(h.r, []int{1, 1, 1, 2, 3, 4}) {
		s.ops = append(s.ops, h.call())
	}
	if h.r.IntN(4) == 0 {
		h.shareUnits(s.ops)
	}

	// Takes of this step can be undone in later ones. The peeks at the end read what a step back
	// has left of the keys that are in use.
	for i := range s.ops {
		if s.ops[i].label != "" {
			h.labels = append(h.labels, s.ops[i])
		}
	}
	for _, l := range live {
		s.ops = append(s.ops, h.peek(l))
	}

	h.count++
	h.last = s
	return s
}

// retire gives up the used keys that may have become fresh, and returns those
// that have not.
func (h *history) retire() (live []subject) {
	for _, rule := range h.rules {
		for _, key := range h.keys() {
			s := subject{rule.name, key}
			_, used := h.resets[s]

			switch {
			case h.mayBeForgotten(s):
				h.renew(s)
			case used || slices.Contains(h.freed, s):
				live = append(live, s)
			}
		}
	}

	// From here on keys become fresh anew, at instants that have been before.
	h.high = h.at
	return live
}

// mayBeForgotten reports whether a store may have forgotten the key because it has
// become fresh by itself.
func (h *history) mayBeForgotten(s subject) bool {
	reset, used := h.resets[s]
	return used && reset.at <= h.high && !slices.Contains(h.freed, s)
}

// renew gives a name to a new key and gives up the key that had it.
func (h *history) renew(s subject) {
	old := h.key(s)
	h.names[s]++
	delete(h.resets, s)
	delete(h.struck, s)
	delete(h.lent, s)
	h.labels = slices.DeleteFunc(h.labels, func(c call) bool { return c.Rule == s.rule && c.Key == old })
}

// retireChanged gives up the keys that may have been forgotten under a limit that
// has changed since. Under the new limit the units of a key that was not forgotten
// may count again.
func (h *history) retireChanged() {
	for _, rule := range h.rules {
		for _, key := range h.keys() {
			if s := (subject{rule.name, key}); h.mayBeForgotten(s) && h.resets[s].limit != rule.limit {
				h.renew(s)
			}
		}
	}
}

// peek returns a Peek at the key.
func (h *history) peek(s subject) call {
	rule := h.rule(s.rule)
	return call{Op: core.Op{Verb: core.Peek, Rule: s.rule, Key: h.key(s), Limit: rule.limit, Ban: rule.ban}}
}

func (h *history) rule(name string) *ruleOfHistory {
	i := slices.IndexFunc(h.rules, func(r ruleOfHistory) bool { return r.name == name })
	return &h.rules[i]
}

// instant returns the instant of the next step: one that was named, exactly or
// a microsecond off, or the same again, or later at random, or before. After a
// refund that made a key fresh, it is just before the refund, where the key is
// not fresh yet.
func (h *history) instant() time.Duration {
	at := h.at

	switch n := h.r.IntN(20); {
	case n < 6 && len(h.freed) > 0 && !h.forward:
		at -= time.Microsecond
	case n < 9 && len(h.named) > 0:
		at = pick(h.r, h.named) + time.Duration(h.r.IntN(3)-1)*time.Microsecond
		if at < h.at && (h.forward || h.r.IntN(4) > 0) {
			at = h.at
		}
	case n < 14: // the same again
	case n < 18:
		limit := pick(h.r, h.rules).limit
		period := periodOf(&limit)
		at += time.Duration(h.r.Int64N(int64(period)*2+1)) / pick(h.r, []time.Duration{1, 1, 10, 1000})
	case n == 18:
		at += time.Duration(1+h.r.IntN(1000)) * time.Microsecond
	case !h.forward:
		at -= pick(h.r, []time.Duration{time.Microsecond, 3 * time.Millisecond, time.Second, time.Hour})
	}

	return max(0, at.Truncate(time.Microsecond))
}

func (h *history) call() call {
	rule := pick(h.r, h.rules)
	l := rule.limit
	key := h.key(subject{rule.name, h.keys()[h.r.IntN(3)/2]}) // twice as often the first
	c := call{Op: core.Op{Rule: rule.name, Key: key, Limit: l, Cost: h.cost(&l)}}
	if h.r.IntN(8) > 0 {
		c.Ban = rule.ban
	}

	switch l.Algorithm {
	case core.CalendarWindow:
		c.skew = h.skew()
	case core.Concurrency:
		c.Lease = pick(h.r, []string{"u", "v", "w", "x", "y"})
	}

	// Takes are most of the calls, since only they meet a limit.
	switch n := h.r.IntN(20); {
	case n < 13:
		c.Verb = core.Take
		c.Soft = h.r.IntN(5) == 0
		c.label = fmt.Sprintf("t%d_%d", h.count, h.r.IntN(1<<20))
		if n < 2 && l.MaxDebt() > 0 {
			c.Verb, c.Soft, c.Cost = core.Debit, false, c.Cost*(1+h.r.Int64N(3))
		}
	case n < 16:
		c.Verb = core.Peek
	case n < 19:
		c.Verb = core.Refund
		h.undo(&c)
	default:
		c.Verb, c.Cost, c.Lease = core.Reset, 0, ""
		if c.Ban != nil && h.r.IntN(2) == 0 {
			c.Verb = pick(h.r, []core.Verb{core.Lift, core.Lift, core.Impose})
		}
	}

	if c.Verb < core.Refund && h.r.IntN(3) == 0 {
		c.MaxWait = h.wait(&l)
	}

	if h.lends.IntN(100) < rule.grants {
		h.grant(&c)
	}
	return c
}

// grant makes the call one that grants its key units, or revokes those that it has. Grants often
// end at once with others, or at an instant that was named.
func (h *history) grant(c *call) {
	c.Soft, c.UpTo, c.MaxWait, c.Lease, c.label, c.of, c.whole = false, false, 0, "", "", "", false
	if h.lends.IntN(12) == 0 {
		c.Verb, c.Cost = core.Revoke, 0
		return
	}

	period := periodOf(&c.Limit)
	until := h.at + pick(h.lends, []time.Duration{0, time.Microsecond, period / 3, period, period, 2 * period,
		time.Duration(h.lends.Int64N(int64(2*period) + 1)), time.Duration(h.lends.Int64N(int64(2*period) + 1))})
	if len(h.named) > 0 && h.lends.IntN(3) == 0 {
		until = pick(h.lends, h.named)
	}

	// As many units as can be counted are granted now and then.
	capacity := c.Limit.Capacity()
	c.Verb, c.CreditUntil = core.Grant, Epoch+until.Microseconds()
	c.Cost = pick(h.lends, []int64{1, 1, 2, 3, capacity, 1 + h.lends.Int64N(capacity), 1<<53 - 1 - capacity})
	h.named = append(h.named, until.Truncate(time.Microsecond))
}

// shareUnits makes most takes of a step UpTo, where that is valid.
func (h *history) shareUnits(ops []call) {
	cost := int64(-1)
	for i := range ops {
		c := &ops[i]
		if c.Verb != core.Take || c.Limit.Leased() || takenTwice(ops, i) || h.r.IntN(4) == 0 {
			continue
		}
		if cost < 0 {
			cost = c.Cost
		}
		c.UpTo, c.Cost, c.MaxWait = true, cost, 0
	}
}

// takenTwice reports whether another take of the step is on the key of call i.
func takenTwice(ops []call, i int) bool {
	for j := range ops {
		if j != i && ops[j].Verb == core.Take && ops[j].ID() == ops[i].ID() {
			return true
		}
	}
	return false
}

// undo makes most refunds name a take of the same rule.
func (h *history) undo(c *call) {
	if h.r.IntN(4) == 0 || len(h.labels) == 0 {
		return
	}

	// A refund goes by the limit that its rule has now, which may not be that of the take.
	take := h.labels[max(len(h.labels)-1-h.r.IntN(6), 0)]
	rule := h.rule(take.Rule)
	c.Limit, c.Ban = rule.limit, rule.ban
	c.Rule, c.Key, c.Lease, c.of = take.Rule, take.Key, take.Lease, take.label
	c.whole = h.r.IntN(4) > 0
	if c.whole {
		c.Cost = take.Cost
	}
}

func (h *history) cost(l *core.Limit) int64 {
	capacity := l.Capacity()
	return pick(h.r, []int64{0, 1, 1, 1, 1, 2, capacity, capacity, capacity + 1, capacity / 2,
		1 + h.r.Int64N(capacity)})
}

func (h *history) wait(l *core.Limit) time.Duration {
	period := periodOf(l)
	d := pick(h.r, []time.Duration{0, time.Microsecond, period, period / 2,
		time.Duration(h.r.Int64N(int64(period) + 1)), core.MaxBooking})
	return min(d, core.MaxBooking).Truncate(time.Microsecond)
}

// learn keeps the instants named by the decisions on the last step.
func (h *history) learn(out []core.Decision) {
	h.freed = h.freed[:0]
	for i, d := range out {
		c := &h.last.ops[i]
		if c.Verb == core.Refund && d.ResetAfter == 0 {
			h.freed = append(h.freed, subject{c.Rule, c.Key[:1]})
		}
		h.learnReset(c, &d)

		for _, span := range []time.Duration{d.RetryAfter, d.ResetAfter, d.Wait} {
			if span > 0 && span != core.Never {
				h.named = append(h.named, h.at+span)
			}
		}
		// A ban is remembered for its longest span after its end, so that the next one is longer.
		if d.Banned && d.RetryAfter > 0 && d.RetryAfter != core.Never {
			h.named = append(h.named, h.at+d.RetryAfter+c.Ban.Max)
		}
	}

	h.named = h.named[max(0, len(h.named)-12):] // the latest
}

// learnReset keeps when the key of a call may be fresh. Only a call that has written the
// key changes that, or the first one after the clock has stepped back.
func (h *history) learnReset(c *call, d *core.Decision) {
	s := subject{c.Rule, c.Key[:1]}
	before, used := h.resets[s]
	written := c.Verb == core.Refund || c.Verb == core.Reset || d.Taken > 0
	at := h.learnBan(s, c, d)

	switch {
	case d.ResetAfter == 0 && (h.isKept(s) || c.Verb == core.Lift):
		// It is not certain until when strikes and credits are kept, or whether there were any.
		h.resets[s] = reset{at: at}
	case written && d.ResetAfter == 0:
		delete(h.resets, s)
	case keepsLimit(c.Verb) && used && before.limit != c.Limit:
		// The key is still under the other limit, and fresh no sooner than at this instant.
		h.resets[s] = reset{at: at}
	case written, before.limit == c.Limit, !used && d.ResetAfter > 0:
		h.resets[s] = reset{at, c.Limit}
	case used && h.back:
		h.resets[s] = reset{at: min(before.at, at)}
	}
}

// isKept reports whether a store may keep the key although it is fresh.
func (h *history) isKept(s subject) bool { return h.struck[s] || h.lent[s] }

// keepsLimit reports whether an op with the verb writes a state under the limit that it had.
func keepsLimit(v core.Verb) bool { return v == core.Refund || v >= core.Lift }

// learnBan keeps whether the key of a call may have strikes or a ban. It returns an instant
// until which the decision says that the key is kept.
func (h *history) learnBan(s subject, c *call, d *core.Decision) time.Duration {
	if c.Verb == core.Grant {
		h.lent[s] = true
	}

	switch {
	case c.Verb == core.Reset, c.Verb == core.Lift:
		delete(h.struck, s)
	case c.Verb == core.Take && c.Ban != nil && !c.Soft && !d.Allowed, c.Verb == core.Impose:
		h.struck[s] = true
	}

	switch before, used := h.resets[s]; {
	case used && before.at <= h.at && d.ResetAfter == 0:
		// A store may have forgotten the units before, and a strike leaves them as they are.
	case d.Banned && d.RetryAfter != core.Never:
		return h.at + max(d.ResetAfter, d.RetryAfter)
	}
	return h.at + d.ResetAfter
}
