// This file has the units that a key is granted beside its limit.

package core

import (
	"cmp"
	"slices"
)

// MaxCredits is how many grants with units left a key may have at once.
const MaxCredits = 8

// maxCredit is the most units that the grants of a key may have had together.
const maxCredit = exact - 1

// maxCreditSpan is how far ahead a credit may end, in microseconds: ten years of 365.25 days.
const maxCreditSpan = 315_576_000_000_000

// credit is what a key was granted by a [Grant], or by several that end at once. A state has its
// credits in the order of their ends. The elements are never written, as a store may lend them.
type credit struct{ Until, Left, Used int64 }

// hasCredit reports whether the state has credits, which may have ended.
func (a *Aside) hasCredit() bool { return len(a.Credits) != 0 }

// endCredits drops the credits that have ended.
func (a *Aside) endCredits(now int64) {
	for len(a.Credits) > 0 && a.Credits[0].Until <= now {
		a.Credits = a.Credits[1:]
	}
}

// credit returns the units that may be taken beside the limit.
func (a *Aside) credit() (n int64) {
	for _, c := range a.Credits {
		n += c.Left
	}
	return n
}

// creditReset returns the span until the last credit has ended.
func (a *Aside) creditReset(now int64) int64 {
	if !a.hasCredit() {
		return 0
	}
	return max(0, a.Credits[len(a.Credits)-1].Until-now)
}

// grant adds n units that end at until. It reports whether that can be: the end is to come within
// ten years, the units can be counted, and there is room.
func (a *Aside) grant(n, until, now int64) bool {
	all := n
	for _, c := range a.Credits {
		all += c.Left + c.Used
	}

	if until <= now || until > now+maxCreditSpan || all > maxCredit {
		return false
	}

	at, same := slices.BinarySearchFunc(a.Credits, until, func(c credit, until int64) int {
		return cmp.Compare(c.Until, until)
	})

	list := slices.Clone(a.Credits)
	if same {
		list[at].Left += n
		a.Credits = list
		return true
	}

	// A credit that is used up makes room. Then a refund gives nothing back to it.
	list = slices.Insert(list, at, credit{Until: until, Left: n})
	if len(list) > MaxCredits {
		used := slices.IndexFunc(list, func(c credit) bool { return c.Left == 0 })
		if used < 0 {
			return false
		}
		list = slices.Delete(list, used, used+1)
	}
	a.Credits = list
	return true
}

// lend carries out a Grant or a Revoke, and reports whether it has changed the credits.
func (a *Aside) lend(op *Op, now int64, d *Decision) (changed bool) {
	if op.Verb == Revoke {
		changed = a.hasCredit()
		a.Credits = nil
		return changed
	}

	if d.Allowed = a.grant(op.Cost, op.CreditUntil, now); !d.Allowed {
		d.RetryAfter = Never
	}
	return d.Allowed
}

// draw takes n units, which are there, from the credits that end first. It returns the end of the
// first of them.
func (a *Aside) draw(n int64) (until int64) {
	a.Credits = slices.Clone(a.Credits)
	for i := range a.Credits {
		c := &a.Credits[i]
		k := min(n, c.Left)
		if k > 0 && until == 0 {
			until = c.Until
		}

		c.Left, c.Used, n = c.Left-k, c.Used+k, n-k
	}
	return until
}

// giveBack gives up to n used units back to the credits that end at until or later. A refund
// does not say how many units came from which, so the one that ends first is the first to get
// its own back.
func (a *Aside) giveBack(n, until int64) (changed bool) {
	a.Credits = slices.Clone(a.Credits)
	for i := range a.Credits {
		c := &a.Credits[i]
		if c.Until >= until {
			k := min(n, c.Used)
			c.Left, c.Used, n = c.Left+k, c.Used-k, n-k
			changed = changed || k > 0
		}
	}
	return changed
}

// refundCredit gives back what a Refund says of credits. It returns the units that the limit
// gets back, and whether a credit has got any.
func (op *Op) refundCredit(s *State, now int64) (rest int64, changed bool) {
	n := min(op.FromCredit, op.Cost)
	if n > 0 && op.CreditUntil > now && s.hasCredit() {
		changed = s.giveBack(n, op.CreditUntil)
	}
	return op.Cost - n, changed
}

// creditedDelay returns the span until n units fit into what the limit has and the credits
// together, at least from, or -1 if they never do.
func (op *Op) creditedDelay(s *State, now, n, from int64) (span int64) {
	a, left := algorithms[op.Limit.Algorithm], s.credit()
	for i := 0; ; i++ {
		// What the credits lack, the limit has to have before the first of them ends.
		switch lacks := n - left; {
		case lacks <= 0:
			span = from
		case lacks > op.Limit.Capacity():
			span = -1
		default:
			span = max(from, a.delay(s, &op.Limit, now, lacks, 0, op.Lease))
		}

		if i == len(s.Credits) || span >= 0 && now+span < s.Credits[i].Until {
			return span
		}
		left -= s.Credits[i].Left
	}
}

// decideOnCredit decides an op for which n units have to fit, on a key with credits. Who can be
// admitted by them does not wait for a slot, and a slot is of the limit's units alone.
func (op *Op) decideOnCredit(s *State, now, n int64, d *Decision) {
	banned := op.banned(s, now)

	span := op.creditedDelay(s, now, n, banned)
	if span == 0 {
		d.Allowed = true
		return
	}

	if ahead := op.MaxWait; ahead > 0 && banned == 0 && op.Limit.Books() && n <= op.Limit.Capacity() {
		a := algorithms[op.Limit.Algorithm]
		if wait := micros(a.delay(s, &op.Limit, now, n, ahead.Microseconds(), op.Lease)); wait <= ahead {
			d.Allowed, d.Wait = true, wait
			return
		}
	}

	d.RetryAfter = Never
	if span > 0 {
		d.RetryAfter = micros(span)
	}
}

// drawCredit takes from the credits what the limit lacks of n units, which fit, and returns the
// units that the limit is to charge. Units that have to be booked come from the limit alone.
func (op *Op) drawCredit(s *State, now, n int64, d *Decision) (own int64) {
	if op.creditedDelay(s, now, n, 0) != 0 {
		return n
	}

	remaining, _ := algorithms[op.Limit.Algorithm].gauge(s, &op.Limit, now)
	if own = min(n, remaining); own < n {
		d.FromCredit = n - own
		d.CreditUntil = s.draw(n - own)
		s.ConductChanged = true
	}
	return own
}

// creditFault returns what is wrong with what an operation says of credits, or "".
func (op *Op) creditFault() string {
	switch {
	case op.Verb != Grant && op.Verb != Revoke && op.Verb != Refund:
		return ""
	case op.Verb != Refund && op.Limit.Leased():
		return "a lease ends by itself, so a leased limit has no credit"
	case op.FromCredit < 0 || op.CreditUntil < 0 || op.CreditUntil >= exact:
		return "FromCredit or CreditUntil is not of a decision"
	case op.Verb == Grant && (op.Cost < 1 || op.Cost > maxCredit):
		return "the units of a grant are not within 1 to 2^53 - 1"
	}
	return ""
}
