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

// lineOfKey is the requests that wait for one key of a rule, the oldest first. A slot belongs to
// the line: it moves to an older request, or to the next if its holder leaves. The mutex of the
// queue guards a line and its waiters, and all their methods need it.
//
//	waiters   hold slots ..., the asker, have none ...
//
//	          due, or units may have come back
//	no asker ---------------------------------> the asker asks
//	   ^   ^                                      |
//	   |   +--- it has a slot, or asks later -----+   one slot at a time is booked
//	   |
//	   +------- slots are given back: no request asks until they are (canceling)
//
//	another was faster    lost + 1: the line asks earlier; from maxLost on it books far ahead
//	a slot was booked     won + 1, lost = 0: from maxLost on the line has no rival
type lineOfKey struct {
	waiters   []*waiter
	spare     []*Slot       // that no request holds yet
	asking    *waiter       // asks the store, or nil; none else asks meanwhile
	canceling int           // how many are giving slots back; none asks meanwhile
	askNow    bool          // units may have come back since the first last asked
	due       time.Time     // when the first asks if no units come back before
	lead      time.Duration // how long before its instant a slot is booked
	unitsAt   time.Time     // when the units of the first come, if they are to be booked; zero if unknown
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

// notify makes the request look at its line.
func (w *waiter) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // it will look
	}
}

// insert puts a request into the line.
func (l *lineOfKey) insert(w *waiter) {
	at := len(l.waiters)
	for at > 0 && w.arrival.before(l.waiters[at-1].arrival) {
		at--
	}
	l.waiters = slices.Insert(l.waiters, at, w)
}

// asker returns the index of the request that may ask, or -1. While a request asks none may,
// even an older one that has come meanwhile: each would book a slot.
func (l *lineOfKey) asker() int {
	if l.asking != nil || l.canceling > 0 {
		return -1
	}
	return slices.IndexFunc(l.waiters, func(w *waiter) bool { return w.slot == nil })
}

// askAt returns when the asker i is to ask.
func (l *lineOfKey) askAt(i int) time.Time {
	switch {
	case i == 0 && l.askNow:
		return time.Time{}
	case i == 0:
		return l.due
	}
	at := l.slotAfter(l.waiters[i-1].slot, l.waiters[i]).Add(-l.bookingLead())
	if l.waiters[i].notBefore.After(at) {
		return l.waiters[i].notBefore
	}
	return at
}

// slotAfter returns the instant at which w can have its units if the last units that were
// booked are those of s.
func (l *lineOfKey) slotAfter(s *Slot, w *waiter) time.Time {
	if l.farAhead {
		return s.Due
	}
	return s.Due.Add(spanOf(w.limit, w.cost))
}

// bookingLead returns how long before its instant a slot is booked. A line that another process was
// faster than asks earlier the next time, so that they take turns.
func (l *lineOfKey) bookingLead() time.Duration {
	return min(l.lead+time.Duration(l.lost)*leadStep, maxLead)
}

// startAsk makes w the one that asks, and returns how far ahead it may book. A slot that is
// booked far ahead is lost if the clients of this process leave before and another has booked
// behind.
func (l *lineOfKey) startAsk(w *waiter) (horizon time.Duration) {
	l.asking = w

	switch {
	case l.farAhead:
		return core.MaxBooking
	case l.won >= maxLost:
		return 2 * maxLead
	}
	return 2 * l.bookingLead() // the store may be nearer than it was
}

// recordRefusal records that the store has not booked for w, the first, and when its units come.
func (l *lineOfKey) recordRefusal(w *waiter, unitsAt time.Time, span time.Duration) {
	// Units that come later than one span of w say that others have booked before it.
	l.farAhead = w.limit.Books() && (l.lost >= maxLost || span > spanOf(w.limit, w.cost)+maxLead)

	// Who books far ahead may ask at once: the instant of its units does not matter to the store.
	l.askNow, l.due = l.farAhead, unitsAt

	if w.limit.Books() {
		l.askBefore(w, unitsAt)
	}
}

// slotUsed makes the request behind w, which uses s, ask when its units come.
func (l *lineOfKey) slotUsed(w *waiter, s *Slot) {
	if l.waiters[0] == w && len(l.waiters) > 1 {
		l.askNow = false
		l.askBefore(l.waiters[1], l.slotAfter(s, l.waiters[1]))
	}
}

// askBefore makes the first, w, ask before its units come. A line that has lost no slot lately
// has no rival, so it books one slot ahead: then it loses none if its timers run late.
func (l *lineOfKey) askBefore(w *waiter, unitsAt time.Time) {
	ahead := l.bookingLead()
	if l.won >= maxLost {
		ahead = max(ahead, min(spanOf(w.limit, w.cost), maxLead))
	}

	l.unitsAt, l.due = unitsAt, unitsAt.Add(-ahead)
}

// wakeNext makes the next request ask, and wakes those whose waits should have ended.
func (l *lineOfKey) wakeNext() {
	if i := l.asker(); i >= 0 {
		l.waiters[i].notify()
	}

	now := time.Now()
	for _, w := range l.waiters {
		if w.slot == nil && !w.end.After(now) {
			w.notify()
		}
	}
}

// isAhead reports whether a request of the line has to be served before one that arrived at a.
func (l *lineOfKey) isAhead(a arrival, now time.Time) bool {
	if l.canceling > 0 {
		return true
	}

	var last *Slot
	for _, w := range l.waiters {
		if !w.arrival.before(a) {
			break
		}
		// An older request that holds no slot has still to ask, and its units come first.
		if w.slot == nil {
			return true
		}
		last = w.slot
	}

	// All older ones hold slots: a comes after them once the last of these is due within the lead.
	return last != nil && last.Due.Add(-l.lead).After(now)
}

// isServing reports whether requests are having their turn now.
func (l *lineOfKey) isServing(now time.Time) bool {
	i := l.asker()
	if i < 0 {
		return l.asking != nil || l.canceling > 0
	}
	return !l.askAt(i).After(now) || i > 0 && !l.waiters[0].slot.Due.After(now)
}

// unitsBefore returns how many units the requests need that are older than a and hold no slot.
func (l *lineOfKey) unitsBefore(a arrival) (units int64) {
	for _, w := range l.waiters {
		if w.slot == nil && w.arrival.before(a) {
			units += w.cost
		}
	}
	return units
}

// turnOf returns the earliest instant at which w, which has no slot, can have its turn if
// requests end as those of late did. If no slot is booked the units come back one after
// another from that instant on.
func (l *lineOfKey) turnOf(w *waiter, e *ends, from time.Time) time.Time {
	units := e.expect(l.unitsBefore(w.arrival)) + w.cost
	if !w.limit.Books() {
		return l.due.Add(periodsOf(w.limit, units))
	}

	// The units come back one span after another from the first instant that is known: that of the
	// first request's units, or else that of the last slot before w.
	if first := l.waiters[0]; first.slot == nil && !l.unitsAt.IsZero() {
		from = l.unitsAt.Add(-spanOf(first.limit, first.cost))
	}
	for _, other := range l.waiters {
		if other == w {
			break
		}
		if other.slot != nil {
			from = other.slot.Due
		}
	}

	return from.Add(spanOf(w.limit, units))
}

// give hands a slot to the oldest request that it fits and that has none or a later one,
// whose slot goes on to the next. It returns the slot that no request has a use for, or nil.
// A request without a slot is not overtaken by another such request.
func (l *lineOfKey) give(s *Slot) *Slot {
	if s.Owner != nil {
		return s
	}

	// The oldest comes first. An exchange leaves a later slot in s, which goes on down the line.
	for _, w := range l.waiters {
		switch {
		case w == l.asking: // it compares this slot with its answer
			l.spare = append(l.spare, s)
			return nil
		case s.Due.After(w.end):
		case !s.fits(w.ops) || w.slot != nil && !w.slot.fits(w.ops):
			// A request without a slot is not overtaken, even if the slot does not fit it.
			if w.slot == nil {
				return s
			}
		case w.slot == nil:
			w.slot = s
			w.notify()
			return nil
		case s.Due.Before(w.slot.Due):
			w.slot, s = s, w.slot
			w.notify()
		}
	}

	return s
}

// assignSlots gives the spare slots to requests, and has the next one ask. It returns the slots
// to give back, which the caller cancels.
func (l *lineOfKey) assignSlots() (surplus []*Slot) {
	spare, now := l.spare, time.Now()
	l.spare = nil
	for _, s := range spare {
		// A kept slot was kept for a request that comes before its instant. None came.
		if s.Kept && !s.Due.After(now) {
			continue
		}

		switch s = l.give(s); {
		case s == nil:
		case s.Kept:
			l.spare = append(l.spare, s)
		default:
			surplus = append(surplus, s)
		}
	}

	// While slots are given back the store's answers would be out of date, so none asks.
	if len(surplus) > 0 {
		l.canceling++
		// The store can give back a slot behind which none is booked.
		slices.SortFunc(surplus, func(a, b *Slot) int { return b.Due.Compare(a.Due) })
	}

	l.wakeNext()
	return surplus
}

// ends is how many of the latest requests in line were served, and how many left before.
type ends struct{ served, abandoned int64 }

// add counts a request. Older ones count for less and less.
func (e *ends) add(served bool) {
	if e.served+e.abandoned >= 64 {
		e.served, e.abandoned = e.served/2, e.abandoned/2
	}
	if served {
		e.served++
	} else {
		e.abandoned++
	}
}

// expect returns how many of the units that requests in line need will be used, if as many
// of them leave as did lately.
func (e *ends) expect(units int64) int64 {
	if e.abandoned == 0 || units <= 0 {
		return units
	}

	// The share is taken as if one more had been served, so that it is never zero.
	share := float64(e.served+1) / float64(e.served+e.abandoned+1)
	return min(units, int64(math.Ceil(float64(units)*share)))
}

// spanOf returns the time in which n units come back under the limit, rounded down.
func spanOf(l *core.Limit, n int64) time.Duration {
	if n <= 0 {
		return 0
	}

	// The product may have more than 64 bits. A span that does not fit is longer than any wait.
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
