package core_test

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

// account is a fixed window and the grants of a key, reckoned in big numbers: what each grant has
// left, by its end, and what was used of it.
type account struct {
	quota, period, used, ends int64
	left, spent               map[int64]*big.Int
}

// settle drops what has ended.
func (a *account) settle(now int64) {
	if a.ends <= now {
		a.used = 0
	}
	for until := range a.left {
		if until <= now {
			delete(a.left, until)
			delete(a.spent, until)
		}
	}
}

// first returns the end of the grant that ends first of those with something in list.
func (a *account) first(list map[int64]*big.Int, from int64) (end int64) {
	for until, n := range list {
		if n.Sign() > 0 && until >= from && (end == 0 || until < end) {
			end = until
		}
	}
	return end
}

// move moves up to n single units between lists, those of the first grants first. It returns the
// end of the first grant, and how many units were moved.
func (a *account) move(from, to map[int64]*big.Int, since, n int64) (first, moved int64) {
	for ; moved < n; moved++ {
		end := a.first(from, since)
		if end == 0 {
			break
		}
		if first == 0 {
			first = end
		}
		from[end].Sub(from[end], big.NewInt(1))
		to[end].Add(to[end], big.NewInt(1))
	}
	return first, moved
}

// credit returns what the grants have left.
func (a *account) credit() int64 {
	sum := new(big.Int)
	for _, n := range a.left {
		sum.Add(sum, n)
	}
	return sum.Int64()
}

// take takes n units, one after the other, and returns how many came from grants.
func (a *account) take(now, n int64) (ok bool, lent, until int64) {
	own := a.quota - min(a.quota, a.used)
	if n > own+a.credit() {
		return false, 0, 0
	}
	own = min(n, own)
	if own > 0 {
		if a.used == 0 {
			a.ends = now + a.period
		}
		a.used += own
	}

	until, lent = a.move(a.left, a.spent, 0, n-own)
	return true, lent, until
}

// grant adds the units of a Grant.
func (a *account) grant(op core.Op) {
	if a.left[op.CreditUntil] == nil {
		a.left[op.CreditUntil], a.spent[op.CreditUntil] = new(big.Int), new(big.Int)
	}
	a.left[op.CreditUntil].Add(a.left[op.CreditUntil], big.NewInt(op.Cost))
}

// refund gives back what a take was charged, to grants first.
func (a *account) refund(op core.Op, now int64) {
	back := min(op.FromCredit, op.Cost)
	if op.CreditUntil > now {
		a.move(a.spent, a.left, op.CreditUntil, back)
	}
	if op.At+op.ResetAfter.Microseconds() == a.ends && a.used > 0 {
		a.used = max(0, a.used-op.Cost+back)
	}
}

// Decide keeps the account of a key as single units in big numbers do.
func TestCreditIsExact(t *testing.T) {
	limit := mustParse(t, "5/10ms fixed-window")
	rapid.Check(t, func(t *rapid.T) {
		a := &account{quota: 5, period: 10_000, left: map[int64]*big.Int{}, spent: map[int64]*big.Int{}}
		s, now := new(core.State), start
		var taken []core.Op
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Int64Range(0, 4000).Draw(t, "later")
			a.settle(now)
			n := rapid.Int64Range(1, 9).Draw(t, "units")
			op := core.Op{Limit: limit, Cost: n}

			switch rapid.IntRange(0, 9).Draw(t, "verb") {
			case 0, 1, 2:
				op.Verb, op.CreditUntil = core.Grant, now+1000*rapid.Int64Range(1, 20).Draw(t, "until")
				if d := decide(s, now, op); !d.Allowed {
					continue // which is for want of room
				}
				if a.grant(op); len(a.left) > core.MaxCredits {
					t.Skip("a grant that is used up made room")
				}
			case 3:
				op.Verb, op.Cost = core.Revoke, 0
				decide(s, now, op)
				clear(a.left)
				clear(a.spent)
			case 4, 5:
				if len(taken) == 0 {
					continue
				}
				op, taken = taken[0], taken[1:]
				decide(s, now, op)
				a.refund(op, now)
			default:
				ok, lent, until := a.take(now, n)
				d := decide(s, now, op)
				if d.Allowed != ok || d.FromCredit != lent || d.CreditUntil != until {
					t.Fatalf("take %d: %+v, want %v with %d until %d", n, d, ok, lent, until)
				}
				if ok {
					taken = append(taken, op.Refund(d))
				}
			}

			d := decide(s, now, core.Op{Verb: core.Peek, Limit: limit})
			if own := a.quota - min(a.quota, a.used); d.Credit != a.credit() || d.Remaining != own+a.credit() {
				t.Fatalf("%+v, want credit %d and %d of the limit", d, a.credit(), own)
			}
		}
	})
}
