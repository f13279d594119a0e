// This file has a line: the requests that wait for one key of a rule.

package waitline

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
)

const (
	// minLead is how long before its instant a slot is booked, beside the time that the store
	// takes. Timers run late by that much.
	minLead = 5 * time.Millisecond

	// leadStep is by how much earlier a line asks for each slot that it has lost.
	leadStep = time.Millisecond

	// maxLead bounds how long before the instant of a slot a line asks for it.
	maxLead = 250 * time.Millisecond

	// maxLost is how often in a row other processes may book before a line does. Then it books
	// far ahead, so each process has its turn, however many share the store. A line that has
	// booked so many slots in a row has no rival.
	maxLost = 8

	// settleTime is how much longer than it may a request waits while those before it have
	// their turn.
	settleTime = 50 * time.Millisecond
)

// line is the requests that wait for one key of a rule, the oldest first. The first without
// a slot asks the store, and those before it hold slots. A slot belongs to the line: it
// moves to an older request, or to the next if its holder leaves. The lock of the queue
// guards a line and its waiters.
type line struct {
	waiters   []*waiter
	spare     []*Slot       // that no request holds yet
	asking    *waiter       // asks the store, or nil; none else asks meanwhile
	canceling int           // how many are giving slots back; none asks meanwhile
	free      bool          // units may have come back since the first last asked
	due       time.Time     // when the first asks if no units come back before
	lead      time.Duration // how long before its instant a slot is booked
	comes     time.Time     // when the units of the first come, if they are to be booked; zero if unknown
	lost      int           // how often in a row another process was faster to book
	won       int           // how many slots in a row it has booked
	farAhead  bool          // the first books far ahead of need, because others do
}

// waiter is a request in a line.
type waiter struct {
	arrival   arrival
	cost      int64
	limit     *core.Limit
	leased    bool      // it waits for a lease
	ops       []core.Op // of the request; they may change while it asks
	notBefore time.Time // by the last answer it need not ask before
	slot      *Slot     // nil if it holds none
	end       time.Time // of its wait
	wake      chan struct{}
}

// arrival is the place of a request in the order of arrival.
type arrival struct {
	at     time.Time
	number uint64 // of those that came at one instant, in the order in which they joined lines
}

// noNumber is the number of a request that has not joined a line yet.
const noNumber = math.MaxUint64

func (a arrival) before(b arrival) bool {
	return a.at.Before(b.at) || a.at.Equal(b.at) && a.number < b.number
}

// call makes the request look at its line.
func (x *waiter) call() {
	select {
	case x.wake <- struct{}{}:
	default: // it will look
	}
}

// insert puts a request into the line.
func (n *line) insert(x *waiter) {
	at := len(n.waiters)
	for at > 0 && x.arrival.before(n.waiters[at-1].arrival) {
		at--
	}
	n.waiters = slices.Insert(n.waiters, at, x)
}

// asker returns the index of the request that may ask, or -1. While a request asks none may,
// even an older one that has come meanwhile: each would book a slot.
func (n *line) asker() int {
	if n.asking != nil || n.canceling > 0 {
		return -1
	}
	return slices.IndexFunc(n.waiters, func(x *waiter) bool { return x.slot == nil })
}

// askAt returns when the asker i is to ask.
func (n *line) askAt(i int) time.Time {
	switch {
	case i == 0 && n.free:
		return time.Time{}
	case i == 0:
		return n.due
	}
	at := n.slotAfter(n.waiters[i-1].slot, n.waiters[i]).Add(-n.ahead())
	if n.waiters[i].notBefore.After(at) {
		return n.waiters[i].notBefore
	}
	return at
}

// slotAfter returns the instant at which x can have its units if the last that were booked are
// those of s.
func (n *line) slotAfter(s *Slot, x *waiter) time.Time {
	if n.farAhead {
		return s.Due
	}
	return s.Due.Add(spanOf(x.limit, x.cost))
}

// ahead returns how long before its instant a slot is booked. A line that another process was
// faster than asks earlier the next time, so that they take turns.
func (n *line) ahead() time.Duration {
	return min(n.lead+time.Duration(n.lost)*leadStep, maxLead)
}

// ask makes x the one that asks, and returns how far ahead it may book. A slot that is booked
// far ahead is lost if the clients of this process leave before and another has booked behind.
func (n *line) ask(x *waiter) (horizon time.Duration) {
	n.asking = x
	switch {
	case n.farAhead:
		return core.MaxBooking
	case n.won >= maxLost:
		return 2 * maxLead
	}
	return 2 * n.ahead() // the store may be nearer than it was
}

// refused notes that the store has not booked for x, the first, and when its units come.
func (n *line) refused(x *waiter, comes time.Time, span time.Duration) {
	n.farAhead = x.limit.Books() && (n.lost >= maxLost || span > spanOf(x.limit, x.cost)+maxLead)
	n.free, n.due = n.farAhead, comes
	if x.limit.Books() {
		n.askBefore(x, comes)
	}
}

// slotUsed has the request behind x, which uses s, ask when its units come.
func (n *line) slotUsed(x *waiter, s *Slot) {
	if n.waiters[0] == x && len(n.waiters) > 1 {
		n.free = false
		n.askBefore(n.waiters[1], n.slotAfter(s, n.waiters[1]))
	}
}

// askBefore has the first, x, ask before its units come. A line that has lost no slot lately has
// no rival, so it books one slot ahead: then it loses none if its timers run late.
func (n *line) askBefore(x *waiter, comes time.Time) {
	ahead := n.ahead()
	if n.won >= maxLost {
		ahead = max(ahead, min(spanOf(x.limit, x.cost), maxLead))
	}
	n.comes, n.due = comes, comes.Add(-ahead)
}

// callNext makes the next request ask, and wakes those whose waits should have ended.
func (n *line) callNext() {
	if i := n.asker(); i >= 0 {
		n.waiters[i].call()
	}
	now := time.Now()
	for _, x := range n.waiters {
		if x.slot == nil && !x.end.After(now) {
			x.call()
		}
	}
}

// isAhead reports whether a request of the line has to be served before one that arrived at a.
func (n *line) isAhead(a arrival, now time.Time) bool {
	if n.canceling > 0 {
		return true
	}
	var last *Slot
	for _, x := range n.waiters {
		if !x.arrival.before(a) {
			break
		}
		if x.slot == nil {
			return true
		}
		last = x.slot
	}
	return last != nil && last.Due.Add(-n.lead).After(now)
}

// moves reports whether requests are having their turn now.
func (n *line) moves(now time.Time) bool {
	i := n.asker()
	if i < 0 {
		return n.asking != nil || n.canceling > 0
	}
	return !n.askAt(i).After(now) || i > 0 && !n.waiters[0].slot.Due.After(now)
}

// unitsBefore returns how many units the requests need that are older than a and hold no slot.
func (n *line) unitsBefore(a arrival) (units int64) {
	for _, x := range n.waiters {
		if x.slot == nil && x.arrival.before(a) {
			units += x.cost
		}
	}
	return units
}

// turnOf returns the earliest instant at which x, which has no slot, can have its turn if
// requests end as lately. If no slot is booked the units come back one after another from then on.
func (n *line) turnOf(x *waiter, e *ends, from time.Time) time.Time {
	units := e.expect(n.unitsBefore(x.arrival)) + x.cost
	if !x.limit.Books() {
		return n.due.Add(periodsOf(x.limit, units))
	}
	if first := n.waiters[0]; first.slot == nil && !n.comes.IsZero() {
		from = n.comes.Add(-spanOf(first.limit, first.cost))
	}
	for _, y := range n.waiters {
		if y == x {
			break
		}
		if y.slot != nil {
			from = y.slot.Due
		}
	}
	return from.Add(spanOf(x.limit, units))
}

// give hands a slot to the oldest request that it fits and that has none or a later one,
// whose slot goes on to the next. It returns the slot that no request has a use for, or nil.
// A request without a slot is not overtaken by another such request.
func (n *line) give(s *Slot) *Slot {
	if s.Owner != nil {
		return s
	}
	for _, x := range n.waiters {
		switch {
		case x == n.asking: // it compares this slot with its answer
			n.spare = append(n.spare, s)
			return nil
		case s.Due.After(x.end):
		case !s.fits(x.ops) || x.slot != nil && !x.slot.fits(x.ops):
			if x.slot == nil {
				return s
			}
		case x.slot == nil:
			x.slot = s
			x.call()
			return nil
		case s.Due.Before(x.slot.Due):
			x.slot, s = s, x.slot
			x.call()
		}
	}
	return s
}

// settle gives the spare slots to requests, and has the next one ask. It returns the slots
// to give back, which the caller cancels.
func (n *line) settle() (surplus []*Slot) {
	spare, now := n.spare, time.Now()
	n.spare = nil
	for _, s := range spare {
		if s.Kept && !s.Due.After(now) {
			continue
		}
		switch s = n.give(s); {
		case s == nil:
		case s.Kept:
			n.spare = append(n.spare, s)
		default:
			surplus = append(surplus, s)
		}
	}
	if len(surplus) > 0 {
		n.canceling++
		// The store can give back a slot behind which none is booked.
		slices.SortFunc(surplus, func(a, b *Slot) int { return b.Due.Compare(a.Due) })
	}
	n.callNext()
	return surplus
}

// ends is how many of the latest requests in line were served, and how many left before.
type ends struct{ served, left int64 }

// note adds a request. Older ones count for less and less.
func (e *ends) note(served bool) {
	if e.served+e.left >= 64 {
		e.served, e.left = e.served/2, e.left/2
	}
	if served {
		e.served++
	} else {
		e.left++
	}
}

// expect returns how many of the units that requests in line need will be used, if as many
// of them leave as did lately.
func (e *ends) expect(units int64) int64 {
	if e.left == 0 || units <= 0 {
		return units
	}
	share := float64(e.served+1) / float64(e.served+e.left+1)
	return min(units, int64(math.Ceil(float64(units)*share)))
}

// spanOf returns the time in which n units come back under the limit, rounded down.
func spanOf(l *core.Limit, n int64) time.Duration {
	if n <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(l.Period), uint64(n))
	if hi >= uint64(l.Quota) {
		return math.MaxInt64 / 4
	}
	span, _ := bits.Div64(hi, lo, uint64(l.Quota))
	return time.Duration(min(span, math.MaxInt64/4))
}

// periodsOf returns the periods of the limit that pass at least before the last of n units
// can be taken, from the instant at which the first can.
func periodsOf(l *core.Limit, n int64) time.Duration {
	quota := min(l.Quota, l.Capacity())
	missing := n - l.Capacity()
	if missing <= 0 || l.Period == 0 {
		return 0
	}
	return time.Duration(min((missing-1)/quota+1, int64(core.MaxBooking/l.Period)+1)) * l.Period
}
